"""`mlflow/experiments.yaml`: what it may say, and how a view looks to the UI."""

from pathlib import Path

import pytest

from posttrain.errors import ConfigError
from posttrain.mlflow_setup import LONGEST_TAG, View, kept_view, read_setup, state_of

SETUP = Path(__file__).parents[1] / "mlflow/experiments.yaml"


def test_the_shipped_file_fits() -> None:
    setup = read_setup(SETUP)
    assert {"posttrain", "posttrain-registry"} == set(setup.experiments)
    assert set(setup.models["posttrain-policy"].aliases) == {"champion", "last_good", "challenger"}


def test_a_setup_with_mistakes_names_all(tmp_path: Path) -> None:
    path = tmp_path / "experiments.yaml"
    path.write_text("experiments: {a: {about: x, view: {}}}\nmodels: {m: {abuot: y}}\n")
    with pytest.raises(ConfigError) as refused:
        read_setup(path)
    assert len(refused.value.faults) == 3
    path.write_text(
        "experiments: {a: {about: x, views: {v: {filter: '', order: seed, columns: [tags.a]}}}}"
    )
    with pytest.raises(ConfigError, match="no column `seed`"):
        read_setup(path)


def test_charts_of_a_view_stand_in_its_section() -> None:
    view = View(filter="", order="tags.seed", lines=("reward/mean",), bars=("seconds",))
    state = state_of("a", view)
    (section,) = state["compareRunSections"]
    assert [(c["type"], c["metricKey"]) for c in state["compareRunCharts"]] == [
        ("LINE", "reward/mean"),
        ("BAR", "seconds"),
    ]
    assert {c["metricSectionId"] for c in state["compareRunCharts"]} == {section["uuid"]}
    assert state["orderByKey"] == "tags.`seed`"


def test_a_view_that_mlflow_cannot_store_is_refused(tmp_path: Path) -> None:
    names = [f"metric_{i}" for i in range(40)]
    view = View(filter="", order="tags.seed", lines=tuple(names))
    assert len(kept_view("v", view, 0, 0)) > LONGEST_TAG
    path = tmp_path / "experiments.yaml"
    path.write_text(
        "experiments: {a: {about: x, views: {v: {filter: '', order: tags.a, lines: "
        + str(names)
        + "}}}}"
    )
    with pytest.raises(ConfigError, match="too long"):
        read_setup(path)
