"""Judges that fail, that mind the order, or that know steps: counted outcomes, never a crash."""

from pathlib import Path

import pytest

from posttrain.benchmark.judged import PATIENCE, against_baseline, persona, steps_by_judge
from posttrain.benchmark.suites import Item
from posttrain.benchmark.suites.sources import prompt_of
from posttrain.engines import Sampling
from posttrain.engines.transformers import TransformersEngine
from posttrain.errors import TransientError
from posttrain.interruption import PREEMPTED, ask, at_work, listening
from posttrain.policies import load_policy


class Away:
    """A judge that is not there."""

    asked = 0

    def score(self, prompts: list[str], responses: list[str]) -> list[float]:
        self.asked += 1
        raise ConnectionError("away")


class Gone:
    """The machine is taken away."""

    def score(self, prompts: list[str], responses: list[str]) -> list[float]:
        ask(PREEMPTED)
        raise PREEMPTED


class FirstPlace:
    """A judge of pairs that likes what it reads first."""

    def score(self, prompts: list[str], responses: list[str]) -> list[float]:
        return [0.0] * len(prompts)

    def compare(self, prompts: list[str], firsts: list[str], seconds: list[str]) -> list[float]:
        return [2.0] * len(prompts)


class KnowsSteps:
    """A judge of steps: those with an `x` are wrong; of one solution it says too little."""

    def score(self, prompts: list[str], responses: list[str]) -> list[float]:
        return [0.0] * len(prompts)

    def score_steps(
        self, prompts: list[str], solutions: list[tuple[str, ...]]
    ) -> list[list[float]]:
        return [[float("x" not in each) for each in steps][:2] for steps in solutions]


def items(n: int, **more: object) -> list[Item]:
    prompts = [prompt_of("text", f"{i}?", "-1", "test") for i in range(n)]
    return [Item(prompt, **more) for prompt in prompts]  # type: ignore[arg-type]


def test_judges_that_fail_are_counted(tiny_policy: Path) -> None:
    engine = TransformersEngine(load_policy(tiny_policy))
    how = Sampling(max_new_tokens=2)
    away = Away()
    rows = persona(away)(engine, "s", items(6), how)
    assert [row.measures for row in rows] == [{"unscored": 1.0}] * 6
    assert away.asked == 1 + PATIENCE
    with listening(), at_work(), pytest.raises(TransientError):
        persona(Gone())(engine, "s", items(1), how)
    swayed = against_baseline(FirstPlace())(engine, "s", items(2, options=("theirs",)), how)
    assert [row.correct for row in swayed if row.response.strip()] == [
        0.5 for row in swayed if row.response.strip()
    ]
    labels = (True, False)
    [known] = steps_by_judge(KnowsSteps())(
        engine, "s", items(1, options=("a", "x"), labels=labels), how
    )
    assert (known.correct, known.prediction) == (1.0, "1")
    [short] = steps_by_judge(KnowsSteps())(
        engine, "s", items(1, options=("a", "x", "b"), labels=(*labels, True)), how
    )
    assert (short.measures or {})["unscored"] == 1.0
