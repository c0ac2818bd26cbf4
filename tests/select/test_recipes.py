"""The recipes of the two named sets: they resolve, and their sources are what they say."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from posttrain.cli import layers_of
from posttrain.config import resolve
from posttrain.plugins import build
from posttrain.raw.sources import SOURCES, Skipped
from posttrain.raw.sources.preference_files import preference_files
from posttrain.records import RawRow
from posttrain.stages import TASKS, load_stage

DATA = Path(os.environ.get("POSTTRAIN_DATA", "../shared/data"))


def options(recipe: str, task: str) -> Any:
    stage = load_stage(TASKS[task])
    return resolve(stage.config, stage.name, task, layers_of(recipe, ""), {})


@pytest.mark.parametrize("recipe", ["rm_5k7", "rm_5k7_hub"])
def test_the_pairs_go_by_the_judge_and_spread(recipe: str) -> None:
    chosen = options(recipe, "rm_5k7")
    names = [plugin.name for plugin in chosen.selectors]
    assert names == ["margin_band", "seed_agreement", "k_center"]
    assert chosen.at_least == chosen.selectors[-1].options["n"] == 5700
    for plugin in options(recipe, "raw").sources:
        build(SOURCES, plugin, "raw.sources")
    names = [plugin.name for plugin in options(recipe, "curate").filters]
    assert {"contamination", "identical_pair", "near_duplicate"} <= set(names)


def test_a_hub_set_is_pinned_to_a_commit() -> None:
    hub = options("rm_5k7_hub", "raw").sources[0]
    assert len(hub.options["revision"]) == 40
    assert int(hub.options["revision"], 16)


def test_the_one_shot_recipe_reads_a_history() -> None:
    chosen = options("one_shot", "one_shot")
    assert chosen.history.name == "one_shot_rlvr"
    assert [plugin.name for plugin in chosen.selectors] == ["historical_variance"]


@pytest.mark.realdata
@pytest.mark.skipif(not (DATA / "pandalm").is_dir(), reason="POSTTRAIN_DATA has no pairs")
def test_pairs_on_which_all_annotators_agree() -> None:
    """PandaLM: 86 of 696 tie by majority, 62 have two votes of three; 6 of the other's repeat."""
    found = list(preference_files(0, folder=str(DATA), sets=("pandalm",), agree=3))
    reasons = Counter(row.reason for row in found if isinstance(row, Skipped))
    assert reasons == {"a tie by majority": 86, "the annotators do not all agree": 62}
    pairs = list(preference_files(0, folder=str(DATA), sets=("llms_from_scratch",)))
    assert len(pairs) == 1100
    assert sum(isinstance(row, RawRow) and row.chosen == row.rejected for row in pairs) == 6
