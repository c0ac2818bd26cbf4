"""-> judge: bring in the judge that an earlier run trained and tested.

A graph that trains none (the nightly one) scores judged suites with it. Without a folder the
artifact holds nothing, and the stages after it see no judge. Left out on purpose: judges from the
hub, which no panel has tested.
"""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

from posttrain.artifacts import JUDGE, In, Out, content_files, verify
from posttrain.config import Field, Report, StageConfig
from posttrain.errors import Fault, PosttrainError
from posttrain.journal import Journal


class JudgeConfig(StageConfig):
    """Which judge to bring in."""

    folder: str = Field("", description="judge that the stage `reward_model` wrote; empty: none")


class JudgeReport(Report):
    """What was brought in; `brought` says whether there is a judge."""

    brought: bool
    files: int


def run(
    config: JudgeConfig, *, judge: Annotated[Path, Out(JUDGE)], journal: Journal
) -> JudgeReport:
    """Copy the folder, its digest checked; an empty one where none is configured."""
    judge.mkdir(parents=True)
    if config.folder:
        source = Path(config.folder)
        for name in verify(source, In(JUDGE)).files:
            (judge / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, judge / name)
    files = content_files(judge)
    return JudgeReport(brought=bool(files), files=len(files))


def preflight(config: JudgeConfig) -> Iterator[Fault]:
    """A folder that is no judge, or damaged."""
    try:
        if config.folder:
            verify(Path(config.folder), In(JUDGE))
    except PosttrainError as error:
        yield from error.faults


def still_holds(outputs: Mapping[str, Path], config: JudgeConfig) -> str | None:
    """A stored copy no longer holds when the folder has changed."""
    if not config.folder or content_files(Path(config.folder)) == content_files(outputs["judge"]):
        return None
    return "the judge's folder has changed"
