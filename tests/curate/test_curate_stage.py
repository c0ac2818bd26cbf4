"""Curation: the books balance, known dirt is found, good rows stay, and runs repeat."""

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from posttrain.artifacts import read_rows
from posttrain.curate.stage import CurateConfig, CurateReport, run
from posttrain.errors import DataError
from posttrain.journal import Journal
from posttrain.raw.stage import RawConfig
from posttrain.raw.stage import run as run_raw
from posttrain.records import Demonstration, Preference, Prompt, RawRow
from posttrain.rewards.verifiers import verify
from posttrain.tasks import split_of

DATA = Path(os.environ.get("POSTTRAIN_DATA", Path(__file__).parents[3] / "shared/data"))
OUTPUTS = ("prompts", "demonstrations", "preferences", "evaluation")
RECORDS = dict(zip(OUTPUTS, (Prompt, Demonstration, Preference, Prompt), strict=True))

SMALL: dict[str, object] = {"name": "procedural"} | dict.fromkeys(OUTPUTS, 60)


def raw_rows(folder: Path, journal: Journal, *sources: dict[str, object], seed: int = 0) -> Path:
    config = RawConfig.model_validate({"seed": seed, "sources": list(sources)})
    run_raw(config, rows=folder / "rows", journal=journal)
    return folder / "rows"


def curate(rows: Path, folder: Path, journal: Journal, **options: object) -> CurateReport:
    outputs = {name: folder / name for name in OUTPUTS}
    return run(CurateConfig.model_validate(options), rows=rows, **outputs, journal=journal)


@pytest.fixture(scope="module")
def curated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CurateReport]:
    """4,500 procedural rows with known dirt, curated as by default."""
    folder = tmp_path_factory.mktemp("curate")
    counts = {"demonstrations": 1000, "preferences": 1500, "prompts": 1000, "evaluation": 500}
    journal = Journal(folder / "journal")
    rows = raw_rows(folder, journal, {"name": "procedural", **counts})
    return folder, curate(rows, folder, journal)


def test_every_row_is_accounted_for(curated: tuple[Path, CurateReport]) -> None:
    folder, report = curated
    raw = list(read_rows(folder / "rows", RawRow))
    assert report.rows_in == len(raw) == report.kept + report.dropped
    for table in (report.kinds, report.sources):
        assert sum(flow.rows_in for flow in table.values()) == report.rows_in
        assert all(flow.rows_in == flow.kept + flow.dropped for flow in table.values())
    assert Counter({kind: flow.rows_in for kind, flow in report.kinds.items()}) == Counter(
        row.kind for row in raw
    )
    for kind in OUTPUTS:
        written = len(list(read_rows(folder / kind, RECORDS[kind])))
        assert written == report.kinds[kind].kept == sum(report.difficulty[kind].values())
        by_filter = sum(counts.get(kind, 0) for counts in report.filters.values())
        assert by_filter == report.kinds[kind].dropped
    assert sum(report.reasons.values()) == report.dropped


def test_dropped_rows_are_listed_once_with_their_reason(
    curated: tuple[Path, CurateReport],
) -> None:
    folder, report = curated
    lines = (folder / "prompts/dropped.jsonl").read_text(encoding="utf-8").splitlines()
    dropped = [json.loads(line) for line in lines]
    assert Counter(f"{row['filter']}: {row['reason']}" for row in dropped) == report.reasons
    assert {row["id"] for row in dropped} <= {row.id for row in read_rows(folder / "rows", RawRow)}
    samples = Counter(f"{sample.filter}: {sample.reason}" for sample in report.samples)
    assert samples == {reason: min(5, count) for reason, count in report.reasons.items()}


@pytest.mark.parametrize(
    "dirt", ["exact_duplicate", "near_duplicate", "wrong_answer", "contaminated", "malformed"]
)
def test_known_dirt_is_found(curated: tuple[Path, CurateReport], dirt: str) -> None:
    flow = curated[1].sources[f"procedural/arithmetic+{dirt}"]
    assert flow.rows_in >= 70
    assert flow.dropped / flow.rows_in >= 0.95


@pytest.mark.parametrize(
    ("dirt", "filters", "recall", "precision"),
    [
        ({"exact_duplicate", "near_duplicate"}, {"exact_duplicate", "near_duplicate"}, 1, 0.99),
        ({"contaminated"}, {"contamination"}, 1, 0.8),
        ({"wrong_answer"}, {"wrong_answer", "identical_pair"}, 1, 1),
    ],
)
def test_planted_dirt_is_found_and_little_else(
    curated: tuple[Path, CurateReport],
    dirt: set[str],
    filters: set[str],
    recall: float,
    precision: float,
) -> None:
    """Recall: planted rows that went. Precision: of what those filters took, the planted share."""
    folder, report = curated
    planted = sum(report.sources[f"procedural/arithmetic+{each}"].rows_in for each in dirt)
    lines = (folder / "prompts/dropped.jsonl").read_text(encoding="utf-8").splitlines()
    dropped = [json.loads(line) for line in lines]
    gone = [row for row in dropped if row["source"].partition("+")[2] in dirt]
    taken = [row for row in dropped if row["filter"] in filters]
    right = [row for row in taken if row["source"].partition("+")[2] in dirt]
    assert planted >= 60
    assert len(gone) / planted >= recall
    assert len(right) / len(taken) >= precision


def test_good_rows_stay(curated: tuple[Path, CurateReport]) -> None:
    flow = curated[1].sources["procedural/arithmetic"]
    assert flow.rows_in == 4000
    assert flow.dropped / flow.rows_in <= 0.02


def test_what_is_kept_is_right_and_apart(curated: tuple[Path, CurateReport]) -> None:
    folder, _ = curated
    held_out = {prompt.text for prompt in read_rows(folder / "evaluation", Prompt)}
    answers = {row.prompt: row.answer or "" for row in read_rows(folder / "rows", RawRow)}
    texts = [prompt.text for prompt in read_rows(folder / "prompts", Prompt)]
    for row in read_rows(folder / "demonstrations", Demonstration):
        assert verify("arithmetic", row.prompt, answers[row.prompt], row.response)
        assert row.reward == 1.0
        texts.append(row.prompt)
    for pair in read_rows(folder / "preferences", Preference):
        assert verify("arithmetic", pair.prompt, answers[pair.prompt], pair.chosen)
        assert not verify("arithmetic", pair.prompt, answers[pair.prompt], pair.rejected)
        texts.append(pair.prompt)
    assert not held_out & set(texts)
    assert all(split_of(text) == "eval" for text in held_out if "Alex" not in text)
    for kind in OUTPUTS:
        ids = [row.id for row in read_rows(folder / kind, RECORDS[kind])]
        assert len(ids) == len(set(ids))


def test_same_rows_same_bytes(curated: tuple[Path, CurateReport], tmp_path: Path) -> None:
    folder, report = curated
    again = curate(folder / "rows", tmp_path, Journal(tmp_path / "journal"))
    assert again == report
    for kind in OUTPUTS:
        for file in (folder / kind).iterdir():
            assert file.read_bytes() == (tmp_path / kind / file.name).read_bytes()


def test_without_filters_everything_stays(tmp_path: Path, journal: Journal) -> None:
    rows = raw_rows(tmp_path, journal, SMALL | {"dirt": {}})
    report = curate(rows, tmp_path, journal, filters=[])
    assert report.dropped == 0
    assert report.samples == []


def test_samples_can_be_without_text(tmp_path: Path, journal: Journal) -> None:
    rows = raw_rows(tmp_path, journal, SMALL)
    report = curate(rows, tmp_path, journal, sample_characters=0)
    assert report.samples
    assert {sample.text for sample in report.samples} == {""}


def test_when_nothing_is_kept_the_reasons_are_told(tmp_path: Path, journal: Journal) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"task": "number", "prompt": "How many?"}\n', encoding="utf-8")
    rows = raw_rows(tmp_path, journal, {"name": "jsonl", "paths": [str(file)]})
    with pytest.raises(DataError, match=r"schema: no answer \(1\)"):
        curate(rows, tmp_path, journal)


@pytest.mark.realdata
@pytest.mark.skipif(not DATA.is_dir(), reason="POSTTRAIN_DATA names no folder")
def test_real_rows_are_mostly_kept(tmp_path: Path, journal: Journal) -> None:
    math = {"name": "math_files", "folder": str(DATA), "limit": 1000}
    pairs = {
        "name": "preference_files",
        "folder": str(DATA),
        "sets": ["pandalm", "hh_rlhf_harmless"],
        "limit": 1000,
    }
    report = curate(raw_rows(tmp_path, journal, math, pairs), tmp_path, journal)
    for source, at_least in (("gsm8k", 0.99), ("svamp", 0.99), ("hh_rlhf_harmless", 0.99)):
        assert report.sources[source].kept / report.sources[source].rows_in >= at_least
    # The four MAWPS files hold each other's problems; PandaLM rows repeat pairs of responses.
    assert report.reasons["exact_duplicate: exact duplicate"] >= 200
    assert "wrong_answer: wrong answer" not in report.reasons
