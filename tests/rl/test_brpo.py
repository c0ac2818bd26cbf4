"""BRPO: a random reference, who beats it, and a judge that reads both."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from posttrain.artifacts import write_rows
from posttrain.errors import ConfigError
from posttrain.journal import Journal, read_curves
from posttrain.methods import load_method
from posttrain.plugins import Plugin, build
from posttrain.policies import load_policy, save_policy
from posttrain.records import Preference, Prompt
from posttrain.reward_model.loading import JUDGE_FILE
from posttrain.reward_model.panel import PANEL
from posttrain.reward_model.stage import RewardModelConfig
from posttrain.reward_model.stage import run as reward_model
from posttrain.rewards import REWARDS
from posttrain.rl.advantages import ADVANTAGES
from posttrain.rl.config import RLConfig
from posttrain.rl.parts import build_parts
from posttrain.rl.reference import reference_of
from posttrain.rl.rollout import Group, Rollout
from posttrain.rl.scored import Scored
from posttrain.rl.stage import RLReport
from posttrain.rl.stage import run as rl

PROMPT = Prompt(id="p", text="?", answer="1", task="arithmetic", source="test")


def plain_group(*rewards: float, reference: int | None = None) -> Group:
    """A group; with `reference`, one whose reference stands there."""
    for salt in range(1000):
        group = tuple(
            Rollout(PROMPT, str(i), (salt, i), (-1.0, -1.0), False, place=i, reward=r)
            for i, r in enumerate(rewards)
        )
        if reference in (None, reference_of(group)):
            return group
    raise AssertionError("no such reference")


@pytest.mark.parametrize(
    ("rewards", "reference", "expected", "dropped"),
    [
        # The numbers of the paper's tiny case: wins (1, 1, _, 0, 1), and four of four.
        ([1, 1, 0, -1, 1], 2, [1.0, 1.0, 0.0, -1.0, 1.0], {2: "reference"}),
        ([1, 1, 0, 1, 1], 2, [0.0] * 5, {0: "skewed", 1: "skewed", 2: "reference"}),
        ([0.9, 0.2, 0.5, 0.5, 0.7], 2, [1.0, -1.0, 0.0, -1.0, 1.0], {2: "reference"}),
        ([0.5, 0.4, 0.3, 0.2, 0.6], 0, [0.0, -1.0, -1.0, -1.0, 1.0], {0: "reference"}),
    ],
)
def test_brpo_by_hand(
    rewards: list[float], reference: int, expected: list[float], dropped: dict[int, str]
) -> None:
    found = ADVANTAGES["brpo"](Scored([plain_group(*rewards, reference=reference)]))
    assert [float(a) for a in found.advantages] == expected
    assert dropped.items() <= found.dropped.items()
    skew = abs(sum(1 if r > rewards[reference] else -1 for r in rewards) + 1) / 4
    assert found.metrics == {"brpo/kept": float(skew <= 0.6), "brpo/skew": skew}


def test_the_reference_is_drawn_evenly_and_is_the_same_for_whoever_asks() -> None:
    groups = [plain_group(*[0.0] * 5) for _ in range(1)]
    groups = [
        tuple(replace(r, tokens=(salt, i)) for i, r in enumerate(groups[0])) for salt in range(1000)
    ]
    counts = [sum(reference_of(group) == place for group in groups) for place in range(5)]
    assert all(150 < count < 250 for count in counts)
    scored = tuple(r.rewarded({"x": 1.0}, 1.0) for r in groups[0])
    assert reference_of(scored) == reference_of(groups[0])


class Pairs:
    """Prefers the longer response; of equal ones the one that stands first."""

    def __init__(self, *, away: bool = False) -> None:
        self.away, self.seen = away, 0

    def compare(
        self, prompts: Sequence[str], firsts: Sequence[str], seconds: Sequence[str]
    ) -> list[float]:
        self.seen += len(prompts)
        pairs = zip(firsts, seconds, strict=True)
        return [math.nan if self.away else len(a) - len(b) + 0.5 for a, b in pairs]


class Lengths:
    """Scores by length."""

    def score(self, prompts: Sequence[str], responses: Sequence[str]) -> list[float]:
        return [float(len(response)) for response in responses]


def of_lengths(*lengths: int, reference: int) -> Group:
    group = plain_group(*[0.0] * len(lengths), reference=reference)
    return tuple(replace(r, text="x" * n) for r, n in zip(group, lengths, strict=True))


@pytest.mark.parametrize("judge", [Pairs(), Lengths()])
def test_a_response_must_win_in_both_orders(judge: Any) -> None:
    groups = of_lengths(5, 3, 4, 3, 1, reference=1), of_lengths(2, 1, reference=0)
    part = build(REWARDS, Plugin(name="judge", options={"against": "reference"}))
    assert part([*groups[0], *groups[1]], judge) == [1.0, 0.0, 1.0, -1.0, -1.0, 0.0, -1.0]
    assert part([], judge) == []
    if isinstance(judge, Pairs):
        assert judge.seen == 2 * (4 + 1)


def test_a_judge_that_is_away_makes_groups_that_are_dropped() -> None:
    group = of_lengths(5, 3, 4, 3, 1, reference=1)
    part = build(REWARDS, Plugin(name="judge", options={"against": "reference"}))
    rewards = part(group, Pairs(away=True))
    assert rewards == [-1.0, 0.0, -1.0, -1.0, -1.0]
    scored = Scored([tuple(replace(r, reward=v) for r, v in zip(group, rewards, strict=True))])
    assert ADVANTAGES["brpo"](scored).metrics["brpo/kept"] == 0.0


def test_brpo_needs_whole_groups() -> None:
    given = {**load_method("brpo").sections["rl"], "budget": "dars"}
    with pytest.raises(ConfigError, match="take `budget: fixed`"):
        build_parts(RLConfig.model_validate(given), has_judge=True, has_demonstrations=False)


@pytest.fixture
def pairwise_judge(tiny_policy: Path, tmp_path: Path, seal: Callable[..., object]) -> Path:
    """A random policy that compares by likelihood, with a panel that did not let it."""
    folder = tmp_path / "judge"
    policy = load_policy(tiny_policy)
    save_policy(policy.model, policy.tokenizer, folder)
    rows = [
        Preference(id=str(n), prompt_id=str(n), prompt="q", chosen="a", rejected="b", source="t")
        for n in range(8)
    ]
    write_rows(tmp_path / "preferences", rows)
    kind = {"name": "pairwise", "verdict": "likelihood", "template": "compact"}
    reward_model(
        RewardModelConfig.model_validate({"kind": kind, "eval_share": 0.5}),
        policy=tiny_policy,
        preferences=tmp_path / "preferences",
        judge=folder,
        journal=Journal(tmp_path / "rm"),
    )
    assert (folder / JUDGE_FILE).is_file()
    assert (folder / PANEL).is_file()
    return folder


def test_brpo_runs_with_a_judge_of_pairs_and_tells_what_it_asked(
    tiny_policy: Path, pairwise_judge: Path, tmp_path: Path
) -> None:
    prompt = Prompt(id="1", text="2 + 2?", answer="4", task="arithmetic", source="t")
    write_rows(tmp_path / "prompts", [prompt])
    given = {"steps": 2, "prompts_per_step": 2, "group_size": 5, "max_new_tokens": 4}
    options = {**load_method("brpo").sections["rl"], **given, "allow_failed_judge": True}
    report: RLReport = rl(
        RLConfig.model_validate(options),
        policy=tiny_policy,
        prompts=tmp_path / "prompts",
        judge=pairwise_judge,
        trained=tmp_path / "trained",
        journal=Journal(tmp_path / "rl"),
    )
    assert report.generated == 20 == report.used + sum(report.dropped.values())
    assert report.dropped["reference"] == 4
    # Of each group all but the reference, in both orders; equal questions are read once.
    assert report.judge_costs["asked"] == 2 * 2 * 4 * 2
    assert report.judge_costs["unread_share"] == 0.0
    names = {p.name for p in read_curves(tmp_path / "rl/curves.jsonl")}
    assert {"brpo/kept", "brpo/skew", "reward/judge", "judge/asked", "judge/requests"} <= names
