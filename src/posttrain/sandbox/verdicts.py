"""Whether code passes its tests, told so that the code itself has no say in it.

Two sandboxes: the answer runs in one, its tests in the other, and plain values go between them.
The answer's process never holds the tests, what they expect, or a way to the verdict, so that
leaving early (`os._exit(0)`), patching builtins or rewriting files gains it nothing: all it can do
is return values. Programs that read and write are run on each input, and compared here.
"""

import functools
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from posttrain.sandbox import backend_of, run_sandboxed
from posttrain.sandbox.limits import Limits, Outcome
from posttrain.sandbox.remote import Service
from posttrain.sandbox.running import started, watch

MOST_WORKERS = 8

Result = Literal["passed", "failed", "error", "died", "timeout", "memory", "output", "killed"]


class Case(NamedTuple):
    """An input of a program and what it should print; spacing at line ends does not count."""

    stdin: str
    stdout: str


class CodeTests(BaseModel):
    """The `answer` of a row whose task is `code`, as JSON: `tests` of `names`, or `cases`.

    `before` stands before the response's code and before the tests (HumanEval's prompt, which the
    response continues); `names` are what the tests use of the response.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tests: str = ""
    names: tuple[str, ...] = ()
    before: str = ""
    cases: tuple[Case, ...] = ()
    seconds: float = Field(10.0, gt=0, le=3600)
    memory_mib: int = Field(512, ge=64)

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if bool(self.cases) == bool(self.tests and self.names):
            raise ValueError("give `tests` with the `names` they use, or `cases`")
        return self

    def limits(self) -> Limits:
        """Bounds of one run."""
        return Limits(seconds=self.seconds, memory_mib=self.memory_mib)


class Verdict(NamedTuple):
    """`why` is empty where the code passed; `seconds` is wall clock."""

    result: Result
    why: str
    seconds: float


def examine(code: str, tests: CodeTests, *, allow_unsafe: bool = False) -> Verdict:
    """Run code against its tests. Raises ConfigError where no sandbox works."""
    if not tests.cases:
        return by_names(code, tests, allow_unsafe)
    seconds = 0.0
    for case in tests.cases:
        verdict = by_output(tests.before + code, case, tests.limits(), allow_unsafe)
        seconds += verdict.seconds
        if verdict.result != "passed":
            return verdict._replace(seconds=seconds)
    return Verdict("passed", "", seconds)


def examine_all(
    pairs: Sequence[tuple[str, CodeTests]], *, workers: int = 0, allow_unsafe: bool = False
) -> list[Verdict]:
    """The verdicts in order, `workers` at a time (0: one per core, at most 8)."""
    backend_of(allow_unsafe=allow_unsafe)
    check = functools.partial(examine, allow_unsafe=allow_unsafe)
    with ThreadPoolExecutor(workers or cores()) as pool:
        return list(pool.map(lambda pair: check(*pair), pairs))


def cores() -> int:
    """How many sandboxes run at a time unless told otherwise."""
    return min(MOST_WORKERS, len(os.sched_getaffinity(0)))


def by_output(code: str, case: Case, limits: Limits, allow_unsafe: bool) -> Verdict:
    """A program on one input. What it should print stays in our process."""
    found = run_sandboxed(code, stdin=case.stdin, limits=limits, allow_unsafe=allow_unsafe)
    if found.status != "ok":
        return Verdict(found.status, found.stderr[-500:], found.seconds)
    if lines(found.stdout) == lines(case.stdout):
        return Verdict("passed", "", found.seconds)
    return Verdict("failed", f"printed {found.stdout[:200]!r}", found.seconds)


def lines(text: str) -> list[str]:
    """What counts of an output."""
    return [line.rstrip() for line in text.rstrip().split("\n")]


def by_names(code: str, tests: CodeTests, allow_unsafe: bool) -> Verdict:
    """Tests in one sandbox, the names they use in another, and two pipes between the two."""
    limits, backend = tests.limits(), backend_of(allow_unsafe=allow_unsafe)
    if isinstance(backend, Service):
        question = {"code": code, "tests": tests.model_dump()}
        return backend.ask("/judge", question, Verdict, limits.seconds)
    asking = {"mode": "tests", **tests.model_dump(include={"tests", "before"})}
    asking["names"] = list(tests.names)
    with ExitStack() as stack:
        from_tests, to_answer = os.pipe()
        from_answer, to_tests = os.pipe()
        ends = [from_tests, to_tests, from_answer, to_answer]
        try:
            answer = stack.enter_context(
                started(
                    backend,
                    {"mode": "answer", "code": tests.before + code},
                    limits,
                    pipes=ends[:2],
                    captured=False,
                )
            )
            running = stack.enter_context(started(backend, asking, limits, pipes=ends[2:]))
        finally:
            for end in ends:
                os.close(end)
        found = watch(running, limits, [answer])
    return verdict_of(found)


def verdict_of(found: Outcome) -> Verdict:
    """The tests' one line, if they came to write it."""
    if found.status != "ok":
        return Verdict(found.status, found.stderr[-500:], found.seconds)
    said = json.loads(found.stdout)
    return Verdict(said["status"], said["why"], found.seconds)
