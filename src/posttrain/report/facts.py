"""What the page is drawn from: everything it shows, and nothing that differs between two runs
with the same seed. Times come from the run's records and stand apart (`times.py`)."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from posttrain.gate.nights import Night
from posttrain.records import Score

FACTS = "facts.json"


class Fact(BaseModel):
    """A frozen part of the facts; `NaN` survives the way through JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class Estimate(Fact):
    """A share in [0, 1], or a difference of shares, with its 95% interval; `n` counts items."""

    value: float
    low: float
    high: float
    n: int


class Rung(Fact):
    """pass@1 of one policy of the ladder."""

    policy: str
    found: Estimate


class Delta(Fact):
    """How far a policy is above another one, on the same items."""

    policy: str
    start: str
    gain: Estimate


class Artifact(Fact):
    """One artifact of the run, from its manifest. `departures`: options that are not defaults."""

    task: str
    stage: str
    port: str
    record: str
    rows: int | None
    digest: str
    inputs: dict[str, str]
    seed: int
    git: str
    departures: dict[str, Any]
    report: dict[str, Any]


class Curve(Fact):
    """One metric of one task by step; a value that is no finite number is `None`."""

    task: str
    name: str
    steps: list[int]
    values: list[float | None]


class TaskScore(Fact):
    """A score and the policy it belongs to: `base`, `sft`, ..., or `best_of_n`."""

    policy: str
    score: Score


class Cell(Fact):
    """The share of correct items of one difficulty band."""

    suite: str
    difficulty: int
    policy: str
    value: float
    n: int


class Answer(Fact):
    """What one policy answered."""

    policy: str
    response: str
    correct: float
    truncated: bool


class Example(Fact):
    """One item and the answers of every policy. `why` says what it is an example of."""

    why: str
    suite: str
    item_id: str
    prompt: str
    answer: str
    difficulty: int | None
    answers: list[Answer]


class Facts(Fact):
    """The whole run. Fields that no artifact speaks of are empty: the page says so."""

    title: str
    suite: str
    artifacts: list[Artifact]
    curves: list[Curve]
    scores: list[TaskScore]
    rungs: list[Rung]
    deltas: list[Delta]
    cells: list[Cell]
    examples: list[Example]
    panel: dict[str, Any]
    verdict: dict[str, Any]
    tokens: dict[str, int]
    nights: list[Night] = []

    @property
    def ladder(self) -> dict[str, Estimate]:
        """Policy -> pass@1, as the policies were trained (JSON would sort a mapping)."""
        return {rung.policy: rung.found for rung in self.rungs}

    def report(self, stage: str) -> dict[str, Any] | None:
        """The report of the first task of a stage, if the run has one."""
        return next((a.report for a in self.artifacts if a.stage == stage), None)

    def tasks(self) -> list[str]:
        """Every task once, in the order of the artifacts."""
        return list(dict.fromkeys(a.task for a in self.artifacts))


def read_facts(page: Path) -> Facts:
    """The facts in a page's folder."""
    return Facts.model_validate_json((page / FACTS).read_bytes())
