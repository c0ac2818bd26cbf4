"""The lineage of a row: eleven rows that can be followed by hand, through the stages' own door."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from posttrain.artifacts import read_manifest, write_rows
from posttrain.cli import main
from posttrain.curate.stage import DROPPED
from posttrain.errors import ConfigError, DataError
from posttrain.lineage.curated import audit, curations
from posttrain.lineage.folders import BLOCK, artifacts_in, lines_with
from posttrain.lineage.shown import plain
from posttrain.records import Demonstration, RawRow, content_id
from posttrain.verbs.dropped import main as dropped
from posttrain.verbs.trace import main as trace

PORTS = ("prompts", "demonstrations", "preferences", "evaluation")


def made(prompt: str, **fields: str) -> RawRow:
    about = {"source": "jsonl/eleven", "task": "arithmetic"} | fields
    return RawRow.model_validate(RawRow.of(prompt=prompt, **about).model_dump())  # type: ignore[arg-type]


GOOD, OTHER = made("What is 2 + 2?", answer="4"), made("What is 9 + 9?", answer="18")
LIKE = made("what is  2 + 2 ?", answer="4")
SHOWN = made("Add 3 and 5.", answer="8", response="3 + 5 = 8\n#### 8")
WRONG = made("Add 3 and 6.", answer="9", response="3 + 6 = 8\n#### 8")
PAIR = made("What is 7 + 1?", answer="8", chosen="7 + 1 = 8\n#### 8", rejected="7 + 1 = 9\n#### 9")
HELD_OUT = made("Compute 30 - 12.", answer="18", split="eval")
EMPTY = made(" ", answer="1")
ODD = made("Say \x1b[31m\u202ered\nnow.")
INSULT = {"chosen": "You oaf!", "rejected": "You oaf!"}
RUDE = made("You dolt!", task="dialogue", source="hh_rlhf_harmless", **INSULT)
ROWS = [GOOD, GOOD, LIKE, OTHER, SHOWN, WRONG, PAIR, HELD_OUT, EMPTY, ODD, RUDE]


def prompt_id(row: RawRow) -> str:
    return content_id(row.task, row.prompt)


class Chain(NamedTuple):
    """A run folder, its store, and a demonstration that was sampled for GOOD."""

    run: Path
    store: Path
    sampled: Demonstration


def eleven(folder: Path) -> dict[str, Any]:
    """The source of the eleven rows."""
    path = folder / "eleven.jsonl"
    path.write_text("".join(row.model_dump_json() + "\n" for row in ROWS))
    return {"name": "jsonl", "paths": [str(path)]}


def enter(run: Path, store: Path, name: str, task: str = "", **flags: object) -> None:
    """A stage by its command line."""
    argv = [name, "--task", task or name, "--tracking", "off"]
    argv += ["--store", str(store), "--run-folder", str(run)]
    for flag, value in flags.items():
        told = str(value) if isinstance(value, Path) else json.dumps(value)
        argv += [f"--{flag.replace('_', '-')}", told]
    assert main(argv) == 0


@pytest.fixture(scope="module")
def chain(
    tmp_path_factory: pytest.TempPathFactory, tiny_policy: Path, seal: Callable[..., Any]
) -> Chain:
    """raw -> curate -> rl_prompts -> (reject) -> rejected_sft, sft -> best_of_n."""
    folder = tmp_path_factory.mktemp("lineage")
    run, store = folder / "run", folder / "store"
    stage = partial(enter, run, store)
    stage("raw", sources=[eleven(folder)], rows=folder / "raw")
    stage("curate", workers=1, rows=folder / "raw", **{port: folder / port for port in PORTS})
    first, chosen = [{"name": "first", "n": 1}], folder / "chosen"
    stage("select", "rl_prompts", selectors=first, curated=folder / "prompts", selected=chosen)
    stage("select", "sft_set", curated=folder / "demonstrations", selected=folder / "all")
    response = "2 + 2 = 4\n#### 4"
    sampled = Demonstration(
        id=content_id(prompt_id(GOOD), response),
        prompt_id=prompt_id(GOOD),
        prompt=GOOD.prompt,
        response=response,
        reward=1.0,
        source="reject",
    )
    write_rows(folder / "sampled", [sampled])
    inputs = {"prompts": read_manifest(chosen).digest}
    seal(folder / "sampled", "Demonstration", task="reject", port="demonstrations", inputs=inputs)
    quick = {"policy": tiny_policy, "eval_share": 0.0, "epochs": 1, "learning_rate": 1e-3}
    stage("sft", demonstrations=folder / "demonstrations", trained=folder / "sft", **quick)
    again = {"demonstrations": folder / "sampled", "trained": folder / "again"}
    stage("sft", "rejected_sft", **quick, **again)
    small = {"n_max": 2, "max_new_tokens": 2, "evaluation": folder / "evaluation"}
    stage("best_of_n", policy=folder / "sft", scores=folder / "scores", **small)
    return Chain(run, store, sampled)


def told(capsys: pytest.CaptureFixture[str], *argv: object, verb: Any = trace) -> Any:
    assert verb([*map(str, argv), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def flat(steps: list[dict[str, Any]], depth: int = 0) -> list[tuple[int, str, str]]:
    """(depth, artifact, fate) of each step, from the top."""
    return [
        line
        for step in steps
        for line in [(depth, step["artifact"], step["fate"]), *flat(step["steps"], depth + 1)]
    ]


def test_a_prompt_is_followed_to_the_model_that_learned_it(
    chain: Chain, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two copies one went; the sampled folder lies beside the run and is named apart."""
    beside = chain.run.parent / "sampled"
    found = told(capsys, GOOD.id, "--run", chain.run, beside)
    assert flat(found["steps"]) == [
        (0, "raw.rows", "holds"),
        (1, "curate.prompts", "holds"),
        (2, "rl_prompts.selected", "holds"),
        (3, "reject.demonstrations", "holds"),
        (4, "rejected_sft.trained", "learned"),
    ]
    raw = found["steps"][0]
    assert raw["rows"] == [1, 2]
    assert "eleven.jsonl (sha256 " in raw["says"]
    curated = raw["steps"][0]
    assert curated["ids"] == [prompt_id(GOOD)]
    assert "(1 of 2 copies dropped by exact_duplicate: exact duplicate)" in curated["says"]
    assert curated["steps"][0]["steps"][0]["ids"] == [chain.sampled.id]


def test_a_held_out_row_reaches_scores(chain: Chain, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, HELD_OUT.id, "--run", chain.run)
    fates = [(0, "raw.rows", "holds"), (1, "curate.evaluation", "holds")]
    assert flat(found["steps"]) == [*fates, (2, "best_of_n.scores", "holds")]
    scores = found["steps"][0]["steps"][0]["steps"][0]
    assert scores["rows"] == [1, 2]
    assert scores["says"] == "best_of_n: 0 correct over 2 samples"


def test_a_demonstration_reaches_what_its_model_did(
    chain: Chain, capsys: pytest.CaptureFixture[str]
) -> None:
    """A selection of every row has the digest of its input, and is no way around it."""
    found = told(capsys, SHOWN.id, "--run", chain.run)
    assert flat(found["steps"])[2:] == [
        (2, "sft_set.selected", "holds"),
        (2, "sft.trained", "learned"),
        (3, "best_of_n.scores", "learned"),
    ]


@pytest.mark.parametrize(
    ("row", "port", "why"),
    [
        (LIKE, "prompts", "dropped by exact_duplicate: exact duplicate"),
        (WRONG, "demonstrations", "dropped by wrong_answer: wrong answer"),
        (EMPTY, "prompts", "dropped by schema: empty prompt"),
        (RUDE, "preferences", "dropped by identical_pair: identical pair"),
    ],
)
def test_a_dropped_row_says_why(
    chain: Chain, capsys: pytest.CaptureFixture[str], row: RawRow, port: str, why: str
) -> None:
    (raw,) = told(capsys, row.id, "--run", chain.run)["steps"]
    assert [(s["artifact"], s["fate"], s["says"]) for s in raw["steps"]] == [
        (f"curate.{port}", "dropped", why)
    ]


def test_what_is_not_chosen_is_left_out(chain: Chain, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, OTHER.id, "--run", chain.run)
    assert flat(found["steps"])[2] == (2, "rl_prompts.selected", "left_out")


def test_a_made_row_leads_back_to_its_raw_row(
    chain: Chain, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the sampled demonstration up to the raw rows, and not down to its siblings."""
    beside = chain.run.parent / "sampled"
    found = told(capsys, chain.sampled.id, "--run", chain.run, beside)
    assert [name for _, name, _ in flat(found["steps"])] == [
        "raw.rows",
        "curate.prompts",
        "rl_prompts.selected",
        "reject.demonstrations",
        "rejected_sft.trained",
    ]
    assert found["steps"][0]["ids"] == [GOOD.id]
    (alone,) = told(capsys, chain.sampled.id, "--run", beside)["steps"]
    assert alone["says"].endswith("what it was made from is not here")


def test_the_store_tells_the_same_as_the_run(
    chain: Chain, capsys: pytest.CaptureFixture[str]
) -> None:
    by_run = flat(told(capsys, PAIR.id, "--run", chain.run)["steps"])
    assert flat(told(capsys, PAIR.id, "--run", chain.store)["steps"]) == by_run
    assert by_run == [(0, "raw.rows", "holds"), (1, "curate.preferences", "holds")]


def test_rows_curated_on_many_machines_are_followed_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = partial(enter, tmp_path / "run", tmp_path / "store")
    rows, evaluation, finished = (tmp_path / name for name in ("rows", "held_out", "finished"))
    stage("raw", sources=[eleven(tmp_path)], rows=rows)
    stage("curate_learn", workers=1, rows=rows, evaluation=evaluation)
    stage("curate_map", workers=1, rows=rows, evaluation=evaluation, finished=finished)
    outputs = {port: tmp_path / port for port in PORTS}
    stage("curate_reduce", workers=1, rows=rows, finished=finished, **outputs)
    (raw,) = told(capsys, WRONG.id, "--run", tmp_path / "run")["steps"]
    assert [(s["artifact"], s["says"]) for s in raw["steps"]] == [
        ("curate_reduce.demonstrations", "dropped by wrong_answer: wrong answer")
    ]
    (found,) = told(capsys, "--run", tmp_path / "run", "--audit", verb=dropped)
    assert (found["rows_in"], found["kept"], found["dropped"]) == (11, 5, 6)


def test_a_row_is_found_by_its_beginning_or_its_text(
    chain: Chain, capsys: pytest.CaptureFixture[str]
) -> None:
    for asked in (SHOWN.id[:9], "Add 3 and 5"):
        assert told(capsys, asked, "--run", chain.run)["id"] == SHOWN.id
    with pytest.raises(DataError, match="more rows than one") as error:
        trace(["Add 3", "--run", str(chain.run)])
    assert SHOWN.id in str(error.value)
    assert WRONG.id in str(error.value)


def test_an_unknown_row_names_the_near_ones(chain: Chain) -> None:
    typo = GOOD.id[:7] + "x" + GOOD.id[8:]
    with pytest.raises(DataError, match="no such row") as error:
        trace([typo, "--run", str(chain.run)])
    assert f"did you mean {GOOD.id}" in str(error.value)


def test_nothing_to_search_is_told(tmp_path: Path) -> None:
    for verb in (trace, dropped):
        with pytest.raises(DataError, match="no artifacts"):
            verb(["cafe", "--run", str(tmp_path)])


def test_drops_are_counted_and_shown(chain: Chain, capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = told(capsys, "--run", chain.run, "--audit", verb=dropped)
    assert (found["rows_in"], found["kept"], found["dropped"]) == (11, 5, 6)
    assert found["reasons"] == {
        "exact_duplicate: exact duplicate": {"prompts": 2},
        "identical_pair: identical pair": {"preferences": 1},
        "schema: empty prompt": {"prompts": 1},
        "schema: no answer": {"prompts": 1},
        "wrong_answer: wrong answer": {"demonstrations": 1},
    }
    assert found["audit"] == {"rows_in": 11, "kept": 5, "dropped": 6, "lost": [], "strange": []}
    (shown,) = told(capsys, "schema", "--limit", 1, "--run", chain.run, verb=dropped)
    assert [row["id"] for row in shown["rows"]] == [EMPTY.id]
    (shown,) = told(capsys, "exact dup", "--run", chain.run, verb=dropped)
    assert [row["texts"]["prompt"] for row in shown["rows"]] == [GOOD.prompt, LIKE.prompt]
    with pytest.raises(ConfigError, match="unknown reason") as error:
        dropped(["shema", "--run", str(chain.run)])
    assert "schema: empty prompt" in str(error.value)


def test_every_generated_row_is_accounted_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Generated rows with known dirt, as the demo has them: counted by ids as by curation."""
    stage = partial(enter, tmp_path / "run", tmp_path / "store")
    counts = dict.fromkeys(PORTS, 60)
    stage("raw", sources=[{"name": "procedural", **counts}], rows=tmp_path / "rows")
    outputs = {port: tmp_path / port for port in PORTS}
    stage("curate", workers=1, rows=tmp_path / "rows", **outputs)
    report = read_manifest(tmp_path / "prompts").report
    (found,) = told(capsys, "--run", tmp_path / "run", "--audit", verb=dropped)
    assert found["audit"].pop("lost") == found["audit"].pop("strange") == []
    assert found["audit"] == {name: report[name] for name in ("rows_in", "kept", "dropped")}
    assert {name: sum(counts.values()) for name, counts in found["reasons"].items()} == report[
        "reasons"
    ]


def test_equal_sets_of_two_runs_are_followed_once_and_accounted_for_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    stage = partial(enter, tmp_path / "run", store)
    stage("raw", sources=[eleven(tmp_path)], rows=tmp_path / "rows")
    outputs = {port: tmp_path / port for port in PORTS}
    for shown in (0, 9):
        stage("curate", workers=1, sample_characters=shown, rows=tmp_path / "rows", **outputs)
    fates = [(0, "raw.rows", "holds"), (1, "curate.preferences", "holds")]
    assert flat(told(capsys, PAIR.id, "--run", store)["steps"]) == fates
    found = told(capsys, "--run", store, "--audit", verb=dropped)
    assert [run["audit"]["rows_in"] for run in found] == [11, 11]


def test_a_terminal_is_safe_from_rows(chain: Chain, capsys: pytest.CaptureFixture[str]) -> None:
    dropped(["no answer", "--run", str(chain.run)])
    trace([ODD.id, "--run", str(chain.run)])
    out = capsys.readouterr().out
    assert out.count(r"prompt: Say \x1b[31m\u202ered\nnow.") == 2
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert plain("é\x00", 1) == "é…"


def test_offensive_text_is_told_and_shown_only_when_asked(
    chain: Chain, capsys: pytest.CaptureFixture[str]
) -> None:
    for verb, what in ((trace, RUDE.id), (dropped, "identical")):
        for form in ((), ("--json",)):
            verb([what, "--run", str(chain.run), *form])
            quiet = capsys.readouterr().out
            assert "hh_rlhf_harmless" in quiet
            assert "oaf" not in quiet
            verb([what, "--run", str(chain.run), "--show-offensive", *form])
            assert "You oaf!" in capsys.readouterr().out


def test_the_audit_finds_a_row_that_vanished_or_appeared(
    tmp_path: Path, seal: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Three prompts, one of them twice: each way of cooking the books is seen by the ids."""
    rows = [GOOD, GOOD, OTHER, LIKE]
    config: dict[str, Any] = {"filters": []}
    write_rows(tmp_path / "raw", rows)
    raw = seal(tmp_path / "raw", "RawRow", task="raw", port="rows")

    def books(kept: list[RawRow], gone: list[RawRow]) -> Any:
        about = {"task": "curate", "config": config, "inputs": {"rows": raw.digest}}
        for port in PORTS:
            folder = tmp_path / port
            lines = [{"id": prompt_id(r), "text": r.prompt, "answer": r.answer} for r in kept]
            full = [
                line | {"task": r.task, "source": ""} for line, r in zip(lines, kept, strict=True)
            ]
            text = "".join(json.dumps(line) + "\n" for line in full)
            folder.mkdir(exist_ok=True)
            (folder / "rows.jsonl").write_text(text if port == "prompts" else "")
            drop = {"kind": "prompts", "source": "", "filter": "f", "reason": "r"}
            if port == "prompts":
                told = "".join(json.dumps({"id": r.id} | drop) + "\n" for r in gone)
                (folder / DROPPED).write_text(told)
            record = {"demonstrations": "Demonstration", "preferences": "Preference"}
            seal(folder, record.get(port, "Prompt"), port=port, **about)
        (curation,) = curations(artifacts_in([tmp_path]))
        return audit(curation)

    assert books([GOOD, OTHER], [GOOD, LIKE]).balanced
    assert books([GOOD, OTHER, LIKE], [GOOD]).balanced
    lost = books([GOOD, OTHER], [GOOD])
    assert (lost.lost, lost.strange, lost.balanced) == ([LIKE.id], [], False)
    (raw_step,) = told(capsys, LIKE.id, "--run", tmp_path)["steps"]
    assert [step["says"] for step in raw_step["steps"]] == ["neither kept nor dropped"]
    swapped = books([GOOD, LIKE], [GOOD, GOOD])
    assert (swapped.lost, swapped.balanced) == ([OTHER.id], False)
    strange = books([GOOD, OTHER], [LIKE, SHOWN])
    assert (strange.lost, strange.strange) == ([GOOD.id], [SHOWN.id])
    with pytest.raises(DataError, match="do not balance"):
        dropped(["--run", str(tmp_path), "--audit"])


def test_lines_are_found_across_blocks(tmp_path: Path) -> None:
    """A needle in the first line, at the end of a block, in the next one, and in the last line."""
    long = b"x" * (BLOCK - 10)
    lines = [b"needle", long, b"needle again needle", b"nothing", b"needle"]
    (tmp_path / "rows").write_bytes(b"\n".join(lines))
    found = list(lines_with(tmp_path / "rows", [b"needle", b"again"]))
    assert found == [(1, lines[0]), (3, lines[2]), (5, lines[4])]
