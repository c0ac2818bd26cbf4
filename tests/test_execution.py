"""The executor: keys, the store, resume after a kill, records, and what the disk may do."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import pytest

from posttrain.artifacts import (
    In,
    Out,
    read_manifest,
    read_rows,
    verify,
    write_manifest,
    write_rows,
)
from posttrain.config import Field, Report, StageConfig
from posttrain.errors import ConfigError, DataError
from posttrain.execution import Request, execute, verify_inputs
from posttrain.exposure import Exposure
from posttrain.journal import Journal, read_curves
from posttrain.records import Prompt
from posttrain.stages import PortParameter, Stage


class EchoConfig(StageConfig):
    suffix: str = Field("!", description="put after every text")
    fail_once: bool = False


class EchoReport(Report):
    rows: int


CALLS: list[str] = []


def echo(
    config: EchoConfig,
    *,
    prompts: Annotated[Path, In(Prompt)],
    echoed: Annotated[Path, Out(Prompt)],
    journal: Journal,
) -> EchoReport:
    """A stage as small as can be: it checkpoints, and may die after the checkpoint."""
    CALLS.append(config.suffix)
    mark = journal.scratch / "mark"
    if config.fail_once and not mark.is_file():
        mark.write_text("here")
        journal.log(0, loss=9.0)
        raise RuntimeError("killed")
    journal.log(0, loss=1.0)
    rows = [
        p.model_copy(update={"text": p.text + config.suffix}) for p in read_rows(prompts, Prompt)
    ]
    return EchoReport(rows=write_rows(echoed, rows))


STAGE = Stage(
    "echo",
    echo,
    EchoConfig,
    (
        PortParameter("prompts", In(Prompt), required=True, many=False),
        PortParameter("echoed", Out(Prompt), required=True, many=False),
    ),
    None,
    None,
)


@pytest.fixture
def request_(tmp_path: Path, seal: Callable[[Path, str], object]) -> Request:
    CALLS.clear()
    folder = tmp_path / "prompts"
    write_rows(folder, [Prompt(id="a", text="x", answer="1", task="arithmetic", source="t")])
    seal(folder, "Prompt")
    return Request(
        stage=STAGE,
        task="echo",
        config=EchoConfig(),
        inputs={"prompts": folder},
        outputs={"echoed": tmp_path / "out" / "echoed"},
        store=tmp_path / "store",
        run_folder=tmp_path / "run",
    )


def test_a_finished_key_is_not_run_again(request_: Request) -> None:
    first = execute(request_)
    second = execute(request_)
    assert (first["cached"], second["cached"]) == (False, True)
    assert CALLS == ["!"]
    assert first["outputs"] == second["outputs"]
    assert second["report"] == {"rows": 1}
    manifest = verify(request_.outputs["echoed"], Out(Prompt))
    assert (manifest.rows, manifest.task, manifest.record) == (1, "echo", "Prompt")
    assert manifest.inputs == {
        "prompts": read_manifest(Path(str(request_.inputs["prompts"]))).digest
    }


def test_an_optional_input_without_content_is_none(
    request_: Request, tmp_path: Path, seal: Callable[[Path, str], object]
) -> None:
    """A task of a graph that had nothing to give still has an output; a required one is kept."""
    optional = PortParameter("judge", In("judge"), required=False, many=False)
    stage = replace(STAGE, ports=(*STAGE.ports, optional))
    empty = tmp_path / "empty"
    empty.mkdir()
    seal(empty, "judge")
    assert not execute(replace(request_, stage=stage, inputs={**request_.inputs, "judge": empty}))[
        "cached"
    ]


def test_a_changed_option_runs_again_and_says_so(request_: Request) -> None:
    execute(request_)
    record = execute(replace(request_, config=EchoConfig(suffix="?")))
    assert not record["cached"]
    assert record["reason"] == "changed: config `suffix`"


def test_changed_input_runs_again_and_says_so(
    request_: Request, seal: Callable[[Path, str], object]
) -> None:
    execute(request_)
    folder = Path(str(request_.inputs["prompts"]))
    write_rows(folder, [Prompt(id="b", text="y", answer="2", task="arithmetic", source="t")])
    seal(folder, "Prompt")
    assert execute(request_)["reason"] == "changed: inputs `prompts`"


def test_a_restored_result_tells_what_its_data_were_checked_against(request_: Request) -> None:
    """The rows are the same, but by now they were checked against more."""
    folder, told = Path(str(request_.inputs["prompts"])), request_.outputs["echoed"]
    execute(request_)
    assert read_manifest(told).exposure == Exposure(unknown=("test",))
    exposure = Exposure(checked=("svamp@1",))
    write_manifest(folder, read_manifest(folder).model_copy(update={"exposure": exposure}))
    assert execute(request_)["cached"]
    assert read_manifest(told).exposure == exposure
    reading = replace(request_, stage=replace(STAGE, reads_exposure=True))
    assert not execute(reading)["cached"]
    write_manifest(folder, read_manifest(folder).model_copy(update={"exposure": None}))
    assert execute(reading)["reason"] == "changed: exposure `prompts`"
    verify(told, Out(Prompt))


def test_a_killed_stage_goes_on_from_its_scratch(request_: Request) -> None:
    dying = replace(request_, config=EchoConfig(fail_once=True))
    with pytest.raises(RuntimeError, match="killed"):
        execute(dying)
    assert not request_.outputs["echoed"].exists()
    record = execute(dying)
    assert not record["cached"]
    points = list(read_curves(request_.outputs["echoed"] / "curves.jsonl"))
    assert [(p.name, p.value) for p in points] == [("loss", 1.0)]
    assert not list((request_.store / "work").iterdir())


def test_a_damaged_store_is_found_and_made_again(request_: Request) -> None:
    record = execute(request_)
    stored = request_.store / record["key"] / "echoed" / "rows.jsonl"
    stored.write_text(stored.read_text().replace("x!", "z!"))
    again = execute(request_)
    assert again["reason"] == "the stored outputs were damaged"
    assert [p.text for p in read_rows(request_.outputs["echoed"], Prompt)] == ["x!"]


def test_all_bad_inputs_are_told_before_any_work(request_: Request) -> None:
    folder = Path(str(request_.inputs["prompts"]))
    (folder / "manifest.json").unlink()
    with pytest.raises(DataError, match="half-written"):
        execute(request_)
    assert not CALLS


def test_an_input_of_another_user_is_told_of(request_: Request) -> None:
    rows = Path(str(request_.inputs["prompts"])) / "rows.jsonl"
    rows.chmod(0)
    nobody, us = 65534, os.geteuid()
    for folder in rows.parents[: len(rows.parents) - 2]:
        folder.chmod(0o755)
    if us == 0:
        os.seteuid(nobody)
    try:
        with pytest.raises(DataError, match=r"cannot read\n.*rows\.jsonl"):
            verify_inputs(request_)
    finally:
        if us == 0:
            os.seteuid(us)


def test_the_same_work_under_another_name_is_its_own(request_: Request, tmp_path: Path) -> None:
    execute(request_)
    target = tmp_path / "other"
    record = execute(replace(request_, task="other", outputs={"echoed": target}))
    assert not record["cached"]
    assert read_manifest(target).task == "other"


def test_force_runs_again(request_: Request) -> None:
    execute(request_)
    assert execute(replace(request_, force=True))["reason"] == "forced"
    assert CALLS == ["!", "!"]


def test_a_stored_result_can_be_vetoed(request_: Request) -> None:
    execute(request_)
    stage = replace(STAGE, still_holds=lambda outputs, config: "the world moved on")
    assert execute(replace(request_, stage=stage))["reason"] == "the world moved on"


def test_an_unwritable_output_is_a_configuration_error(request_: Request, tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    with pytest.raises(ConfigError, match="cannot write"):
        execute(replace(request_, outputs={"echoed": blocker / "echoed"}))


def test_records_stand_in_the_run_folder(request_: Request) -> None:
    execute(request_)
    assert request_.run_folder
    record = json.loads((request_.run_folder / "stages/echo.json").read_text())
    assert record["key_parts"]["config"] == {"suffix": "!", "seed": 0, "fail_once": False}
    assert record["ended"] >= record["started"]
    assert (request_.run_folder / "stages/echo/curves.jsonl").is_file()


def test_two_processes_do_the_work_once(request_: Request) -> None:
    children = []
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            record = execute(request_)
            os._exit(10 if record["cached"] else 11)
        children.append(pid)
    codes = sorted(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children)
    assert codes == [10, 11]
