"""The scorer of suites that ask for programs: each runs against its tests in the sandbox."""

from collections.abc import Sequence

from posttrain.benchmark.suites.suite import Item
from posttrain.engines import Engine, Sampling
from posttrain.records import Prompt, Sample
from posttrain.rewards.programs import code_of
from posttrain.samples import generated
from posttrain.sandbox.verdicts import CodeTests, Verdict, examine_all


def programs(
    engine: Engine,
    suite: str,
    items: Sequence[Item],
    sampling: Sampling,
    *,
    workers: int = 0,
    seconds: float | None = None,
    memory_mib: int | None = None,
    allow_unsafe: bool = False,
) -> list[Sample]:
    """Generate, and run each program against its item's tests, `workers` at a time (0: one per
    core); `seconds` and `memory_mib` stand in for the items' own limits."""
    given = {"seconds": seconds, "memory_mib": memory_mib}
    limits = {name: value for name, value in given.items() if value is not None}
    rows = generated(engine, suite, [item.prompt for item in items], sampling, not_yet)
    pairs = []
    for row in rows:
        tests = CodeTests.model_validate_json(row.answer).model_copy(update=limits)
        pairs.append((code_of(row.response, tests.names), tests))
    verdicts = examine_all(pairs, workers=workers, allow_unsafe=allow_unsafe)
    return [told(row, verdict) for row, verdict in zip(rows, verdicts, strict=True)]


def not_yet(_prompt: Prompt, _response: str) -> bool:
    """Programs are judged together, once all are drawn."""
    return False


def told(row: Sample, verdict: Verdict) -> Sample:
    """A row with its verdict."""
    passed = verdict.result == "passed"
    measures = {} if passed else {verdict.result: 1.0}
    return row.model_copy(
        update={"correct": float(passed), "measures": {"run_seconds": verdict.seconds, **measures}}
    )
