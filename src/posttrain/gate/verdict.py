"""From comparisons to a verdict: `pass`, `fail` or `investigate`, each with its reasons.

What cannot be compared is never a pass. The verdict holds digests, no times, paths or version
numbers, so that the same inputs against the same champion give the same bytes.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from posttrain.gate.comparison import Comparison

Rule = Literal["better", "non_inferior"]
Outcome = Literal["pass", "fail", "investigate"]
Reached = Literal["none", "reached", "unreachable"]


class Baseline(BaseModel):
    """What the challenger was compared with: the registry's champion or the stand-in."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["champion", "stand_in"]
    policy: str | None
    scores: str


class Verdict(BaseModel):
    """What `verdict.json` holds; `champion` is the digest of the policy that held the alias when
    the gate had finished, None where no registry holds one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    verdict: Outcome
    reasons: list[str]
    promoted: bool
    promotion: str
    rule: Rule
    alpha: float
    margin: float
    primary: list[str]
    policy: str
    scores: str
    baseline: Baseline
    champion: str | None
    registry: Reached
    suites: list[Comparison]


def decide(
    comparisons: Sequence[Comparison],
    obstacles: Sequence[str],
    *,
    primary: Sequence[str],
    rule: Rule,
    alpha: float,
    margin: float,
    floors: Mapping[str, float],
) -> tuple[Outcome, list[str]]:
    """The verdict and its reasons.

    fail: a suite is significantly worse, or below its floor. pass: nothing stands in the way and
    (better) a primary suite is significantly better, or (non_inferior) the 95% interval of every
    primary suite stays above -margin. investigate: anything else.
    """
    failures = [
        f"{c.suite}: significantly worse, {_figures(c)}"
        for c in comparisons
        if c.difference < 0 and c.p_holm < alpha
    ] + [
        f"{c.suite}: {c.challenger:.4f} is below its floor of {floors[c.suite]:.4f}"
        for c in comparisons
        if c.suite in floors and c.challenger < floors[c.suite]
    ]
    if failures:
        return "fail", [*failures, *obstacles]
    if obstacles:
        return "investigate", list(obstacles)
    ours = [c for c in comparisons if c.suite in primary]
    if rule == "better":
        won = [c for c in ours if c.difference > 0 and c.p_holm < alpha]
        if won:
            return "pass", [f"{c.suite}: significantly better, {_figures(c)}" for c in won]
        return "investigate", [
            f"{c.suite}: not significantly better, {_figures(c)};"
            f" a difference of {c.detectable:.4f} would show in 4 of 5 tries"
            for c in ours
        ]
    short = [c for c in ours if c.low <= -margin]
    if short:
        return "investigate", [
            f"{c.suite}: may be worse by more than {margin:g}, {_figures(c)}" for c in short
        ]
    return "pass", [f"{c.suite}: not worse by more than {margin:g}, {_figures(c)}" for c in ours]


def _figures(c: Comparison) -> str:
    return f"{c.difference:+.4f} [{c.low:+.4f}, {c.high:+.4f}], adjusted p {c.p_holm:.4f}"


def markdown(verdict: Verdict) -> str:
    """The verdict as people read it."""
    against = {"champion": "the champion", "stand_in": "the stand-in (no champion yet)"}
    head = [
        f"# {verdict.verdict.upper()}",
        "",
        f"Policy `{verdict.policy[:12]}` against {against[verdict.baseline.kind]}"
        f" (scores `{verdict.baseline.scores[:12]}`).",
        f"{'Promoted' if verdict.promoted else 'Not promoted'}: {verdict.promotion}.",
        "",
        *(f"- {reason}" for reason in verdict.reasons),
        "",
        "| suite | items | champion | challenger | difference | 95% interval | p | adjusted p"
        " | detectable |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    rows = [
        f"| {c.suite}{' (primary)' if c.suite in verdict.primary else ''} | {c.n}"
        f" | {c.champion:.4f} | {c.challenger:.4f} | {c.difference:+.4f}"
        f" | [{c.low:+.4f}, {c.high:+.4f}] | {c.p:.4f} | {c.p_holm:.4f} | {c.detectable:.4f} |"
        for c in verdict.suites
    ]
    tail = [
        "",
        f"Paired bootstrap over items, Holm-adjusted at {verdict.alpha:g}; rule"
        f" `{verdict.rule}`. Detectable: the difference found in 4 of 5 studies of this size.",
        "",
    ]
    return "\n".join([*head, *rows, *tail])
