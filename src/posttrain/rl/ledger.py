"""The ledger: what each step generated, used and dropped, for the journal and the report."""

import math
from collections import Counter
from statistics import fmean
from typing import Any

from posttrain.journal import Journal
from posttrain.reward_model.costs import JUDGE, parse_failures
from posttrain.rl.experience import Draw, Lesson
from posttrain.rl.rollout import Rollout

ENDS = 5
"""Steps at either end over which the report averages the reward."""


OWN = ("fresh", "resumed")
"""Sources of what the policy wrote for this update and no other."""


class Ledger:
    """Counts rollouts; generated = used + dropped + pending at any time."""

    def __init__(self, journal: Journal, steps: int, too_long: int = 0) -> None:
        self.journal, self.steps, self.too_long = journal, steps, too_long
        self.rewards: list[float] = []
        self.sums: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.seconds = 0.0

    def spent(self, rollouts: int, seconds: float) -> bool:
        """Whether so many completions were drawn or so much time went by; 0 has no end."""
        return 0 < rollouts <= self.sums["generated"] or 0 < seconds <= self.seconds

    def enter(
        self, step: int, draw: Draw, lessons: list[Lesson], metrics: dict[str, float]
    ) -> None:
        """Add one step and log it, `metrics` with it."""
        everyone = [rollout for group in draw.generated for rollout in group]
        rollouts = [rollout for rollout in everyone if rollout.source != "external"]
        learnt = [lesson.rollout for lesson in lessons if lesson.learn]
        used = sum(rollout.source in OWN for rollout in learnt)
        kept = len({x.group for x in lessons if x.learn and x.rollout.source in OWN})
        tokens = sum(len(rollout.tokens) for rollout in rollouts)
        counts = {
            "generated": len(rollouts),
            "used": used,
            "reused": len(learnt) - used,
            "tokens": tokens,
            "truncated": sum(rollout.truncated for rollout in rollouts),
            "groups": len(draw.generated),
            "kept_groups": kept,
        }
        self.sums.update(counts)
        self.seconds += metrics["time/rollout"] + metrics["time/update"]
        self.dropped.update(draw.dropped)
        described = describe(rollouts)
        self.rewards.append(described["reward/mean"])
        metrics = metrics | described | draw.metrics
        metrics["kept_groups"] = counts["kept_groups"] / max(1, counts["groups"])
        self.sums.update({k: int(v) for k, v in metrics.items() if k.startswith(JUDGE)})
        metrics |= {f"dropped/{why}": float(n) for why, n in draw.dropped.items()}
        metrics |= {name: float(counts[name]) for name in ("tokens", "generated", "used", "reused")}
        self.journal.log(step + 1, **metrics)
        self.journal.progress(step + 1, self.steps, reward=described["reward/mean"])

    def report(self) -> dict[str, Any]:
        """The fields of the stage's report."""
        sums = self.sums
        spent = {k.removeprefix(JUDGE): n for k, n in sorted(sums.items()) if k.startswith(JUDGE)}
        return {
            "steps": len(self.rewards),
            "prompts_too_long": self.too_long,
            "start_reward": fmean(self.rewards[:ENDS]),
            "end_reward": fmean(self.rewards[-ENDS:]),
            "generated": sums["generated"],
            "used": sums["used"],
            "reused": sums["reused"],
            "dropped": {why: n for why, n in sorted(self.dropped.items()) if n},
            "kept_groups": sums["kept_groups"] / max(1, sums["groups"]),
            "tokens": sums["tokens"],
            "mean_length": sums["tokens"] / max(1, sums["generated"]),
            "truncated": sums["truncated"] / max(1, sums["generated"]),
            "judge_costs": {**spent, **parse_failures(spent)},
        }

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs, as JSON."""
        counted = {"rewards": self.rewards, "sums": self.sums, "dropped": self.dropped}
        return counted | {"seconds": self.seconds}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken."""
        self.rewards = list(state["rewards"])
        self.sums, self.dropped = Counter(state["sums"]), Counter(state["dropped"])
        self.seconds = state["seconds"]


def describe(rollouts: list[Rollout]) -> dict[str, float]:
    """Rewards, each part's mean, lengths in tokens and an estimate of the entropy in nats.

    Rewards that are not finite are left out; their groups are counted as `bad_reward`.
    The entropy is that of the sampling policy, estimated by -log p of the tokens it drew.
    """
    logps = [logp for rollout in rollouts for logp in own_logps(rollout)]
    parts = {name for rollout in rollouts for name in rollout.reward_parts}
    if not rollouts:
        return {"reward/mean": 0.0}
    return {
        "reward/mean": finite_mean([rollout.reward for rollout in rollouts]),
        "response/length": fmean(len(rollout.tokens) for rollout in rollouts),
        "response/longest": float(max(len(rollout.tokens) for rollout in rollouts)),
        "response/truncated": fmean(rollout.truncated for rollout in rollouts),
        "response/turns": fmean(rollout.turns for rollout in rollouts),
        "entropy": -fmean(logps) if logps else 0.0,
    } | {f"reward/{part}": finite_mean([r.reward_parts[part] for r in rollouts]) for part in parts}


def own_logps(rollout: Rollout) -> list[float]:
    """Log-probs of the tokens that the policy wrote."""
    if not rollout.acted:
        return list(rollout.behaviour_logps)
    pairs = zip(rollout.behaviour_logps, rollout.acted, strict=True)
    return [logp for logp, own in pairs if own]


def finite_mean(values: list[float]) -> float:
    """Mean of the finite values; 0 when there are none."""
    finite = [value for value in values if math.isfinite(value)]
    return fmean(finite) if finite else 0.0
