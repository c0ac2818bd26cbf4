"""From comparisons to a verdict: `pass`, `fail` or `investigate`, each with its reasons.

What cannot be compared is never a pass. The verdict holds digests, no times, paths or version
numbers, so that the same inputs against the same champion give the same bytes.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from posttrain.exposure import Standing
from posttrain.gate.comparison import Comparison, Strictness

Rule = Literal["better", "non_inferior"]
Outcome = Literal["pass", "fail", "investigate"]
Reached = Literal["none", "reached", "unreachable", "moved"]


class Baseline(BaseModel):
    """What the challenger was compared with: the registry's champion or the stand-in."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["champion", "stand_in"]
    policy: str | None
    scores: str


class Verdict(BaseModel):
    """What `verdict.json` holds; `champion` is the digest of the policy that held the alias when
    the gate had finished, None where no registry holds one. `registry` is `moved` where another
    policy became champion while this one was judged. `contamination` is how the training data
    stand to each suite."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    verdict: Outcome
    reasons: list[str]
    promoted: bool
    promotion: str
    rule: Rule
    alpha: float
    looks: int
    margin: float
    primary: list[str]
    policy: str
    scores: str
    baseline: Baseline
    champion: str | None
    registry: Reached
    suites: list[Comparison]
    contamination: dict[str, Standing] = {}


def decide(
    comparisons: Sequence[Comparison],
    obstacles: Sequence[str],
    *,
    primary: Sequence[str],
    rule: Rule,
    strictness: Strictness,
    floors: Mapping[str, float],
) -> tuple[Outcome, list[str]]:
    """The verdict and its reasons.

    fail: a suite is significantly worse at alpha, or below its floor. pass: nothing stands in the
    way and (better) a primary suite is significantly better at alpha / looks, or (non_inferior)
    of every primary suite a loss of the margin is refuted at alpha / 2 / looks, which with one
    look at 0.05 asks a little more than a 95% interval above -margin. investigate: anything else.
    """
    failures = [
        f"{c.suite}: significantly worse, {_figures(c)}"
        for c in comparisons
        if c.difference < 0 and c.p_holm < strictness.alpha
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
        return _better(ours, strictness)
    return _not_worse(ours, strictness)


def _better(ours: Sequence[Comparison], strictness: Strictness) -> tuple[Outcome, list[str]]:
    won = [c for c in ours if c.difference > 0 and c.p_holm < strictness.alpha / strictness.looks]
    if won:
        return "pass", [f"{c.suite}: significantly better, {_figures(c)}" for c in won]
    return "investigate", [
        f"{c.suite}: not significantly better, {_figures(c)};"
        f" a loss of {c.detectable:.4f} would show in 4 of 5 tries"
        for c in ours
    ]


def _not_worse(ours: Sequence[Comparison], strictness: Strictness) -> tuple[Outcome, list[str]]:
    level = strictness.alpha / 2 / strictness.looks
    short = [c for c in ours if c.p_margin >= level]
    if short:
        return "investigate", [
            f"{c.suite}: may be worse by more than {strictness.margin:g}, {_figures(c)}"
            for c in short
        ]
    return "pass", [
        f"{c.suite}: not worse by more than {strictness.margin:g}, {_figures(c)}" for c in ours
    ]


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
        " | detectable | training data |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    rows = [
        f"| {c.suite}{' (primary)' if c.suite in verdict.primary else ''} | {c.n}"
        f" | {c.champion:.4f} | {c.challenger:.4f} | {c.difference:+.4f}"
        f" | [{c.low:+.4f}, {c.high:+.4f}] | {c.p:.4f} | {c.p_holm:.4f} | {c.detectable:.4f}"
        f" | {verdict.contamination.get(c.suite, 'unknown')} |"
        for c in verdict.suites
    ]
    shared = f" (to promote: over {verdict.looks} nights)" if verdict.looks > 1 else ""
    tail = [
        "",
        f"Paired sign flips over prompts, Holm-adjusted at {verdict.alpha:g}{shared}; rule"
        f" `{verdict.rule}`. Detectable: the loss that fails in 4 of 5 nights of this size.",
        "",
    ]
    return "\n".join([*head, *rows, *tail])
