"""The verdict on a terminal, and the times it tells."""

import pytest

from posttrain.report.facts import Estimate
from posttrain.report.screen import LINES, WIDTH, verdict_screen
from posttrain.report.summary import CurvePoint, Metrics, StageTime, Summary, add_timing
from posttrain.report.times import StageRecord, times_of

NAN = float("nan")


def estimate(value: float) -> Estimate:
    return Estimate(value=value, low=value - 0.04, high=value + 0.04, n=600)


def summary(**changes: object) -> Summary:
    ladder = {"base": 0.1, "rejected_sft": 0.6, "rl": 0.7, "sft": 0.5}
    metrics = Metrics(
        suite="arithmetic",
        pass_at_1={name: estimate(value) for name, value in ladder.items()},
        gains={"rl_over_rejected_sft": estimate(0.1), "sft_over_base": estimate(0.4)},
        reward_model_accuracy=0.8,
        reward_model=estimate(0.8),
        best_of_n=[
            CurvePoint(n=2**i, pass_at_n=estimate(0.7 + i / 50), judge=estimate(0.7 + i / 99))
            for i in range(5)
        ],
        suites={name: {"arithmetic": estimate(0.5), "countdown": estimate(0.2)} for name in ladder},
        gate={"verdict": "pass", "reasons": ["significantly better"]},
    )
    empty = Summary(title="t", metrics=metrics, stages={}, lineage=[])
    return empty.model_copy(update=changes)


def lines(given: Summary) -> list[str]:
    return verdict_screen(given.model_dump(mode="json")).splitlines()


def test_the_ladder_stands_in_the_order_of_training() -> None:
    shown = [line.split()[0] for line in lines(summary())[1:5]]
    assert shown == ["base", "sft", "rejected_sft", "rl"]


def test_the_screen_tells_the_numbers() -> None:
    screen = "\n".join(lines(summary(report="runs/demo/report.html", wall_seconds=245.0)))
    assert "+10.0 [+6.0, +14.0]" in screen
    assert "PASS  significantly better" in screen
    assert "countdown 20.0 → 20.0" in screen
    assert "4 min 05 s" in screen
    assert "runs/demo/report.html" in screen
    assert "80.0% of 600 held-out pairs" in screen


def test_the_screen_has_24_lines_of_80_columns_at_most() -> None:
    long = "x" * 300
    metrics = summary().metrics
    crowded = summary(
        report=long,
        wall_seconds=9e6,
        overhead_seconds=NAN,
        stages={f"{long}{i}": StageTime(stage="s", seconds=9e9, cached=True) for i in range(50)},
        metrics=metrics.model_copy(
            update={
                "suite": long,
                "pass_at_1": {"base": estimate(NAN), **metrics.pass_at_1, "other": estimate(1.0)},
                "best_of_n": [CurvePoint(n=2**i, majority=estimate(1.0)) for i in range(14)],
                "gate": {"verdict": "investigate", "reasons": [long, long]},
                "suites": {p: {f"suite{i}": estimate(0.5) for i in range(40)}
                           for p in metrics.pass_at_1},
            }
        ),
    )  # fmt: skip
    shown = lines(crowded)
    assert len(shown) <= LINES
    assert max(map(len, shown)) <= WIDTH


def test_the_screen_of_nothing_says_so() -> None:
    nothing = Metrics(
        suite="", pass_at_1={}, gains={}, reward_model_accuracy=None, reward_model=None,
        best_of_n=[], suites={}, gate={},
    )  # fmt: skip
    screen = "\n".join(lines(Summary(title="t", metrics=nothing, stages={}, lineage=[])))
    assert screen.count("in this run") == 3
    assert "no benchmark scores" in screen


def record(task: str, started: float, ended: float, seconds: float, **more: object) -> StageRecord:
    fields = {"task": task, "stage": task, "cached": False, "reason": "first run"}
    return StageRecord.model_validate(
        fields | {"started": started, "ended": ended, "seconds": seconds} | more
    )


def test_overhead_is_the_gap_before_and_what_surrounds_the_work() -> None:
    """a: 10-15 with 4 s of work. b starts 2 s later, 17-20, cached. c overlaps nothing new."""
    records = [
        record("b", 17, 20, 99, cached=True),
        record("a", 10, 15, 4),
        record("c", 20, 26, 6, secret="ignored"),
    ]
    times = times_of(records, wall_seconds=20.0)
    assert [(s.task, s.begin, s.seconds, s.overhead_seconds) for s in times.spans] == [
        ("a", 0, 4, 1),
        ("b", 7, 0, 5),
        ("c", 10, 6, 0),
    ]
    assert times.overhead_seconds == 10.0
    assert times_of(records).wall_seconds == 16.0


def test_timing_is_added_to_a_summary() -> None:
    records = [record("sft", 5, 9, 4).model_dump(), record("rl", 10, 12, 1.5).model_dump()]
    timed = add_timing(summary().model_dump(mode="json"), records)
    assert timed["stages"]["rl"]["seconds"] == 1.5
    assert timed["stages"]["rl"]["overhead_seconds"] == pytest.approx(1.5)
    assert timed["wall_seconds"] == 7.0
    assert timed["metrics"] == summary().model_dump(mode="json")["metrics"]
