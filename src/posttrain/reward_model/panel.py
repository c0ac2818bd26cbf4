"""The panel: what a judge must show on preferences it never saw before anybody may use it."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev

from pydantic import BaseModel, ConfigDict, Field

from posttrain.statistics import wilson

PANEL = "panel.json"
BINS = 10


class Thresholds(BaseModel):
    """What the judge must reach."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_accuracy: float = Field(0.70, ge=0, le=1)
    max_ece: float = Field(0.15, ge=0, le=1)
    tolerance: float = Field(1e-3, gt=0)
    max_bos_flips: float = Field(0.02, ge=0, le=1)


class ScoredPair(BaseModel):
    """One held-out preference as the judge sees it; lengths in tokens of the conversation."""

    model_config = ConfigDict(frozen=True)

    source: str
    chosen: float
    rejected: float
    chosen_length: int
    rejected_length: int

    @property
    def margin(self) -> float:
        return self.chosen - self.rejected


class Share(BaseModel):
    """A share of pairs in which the better response wins, with its 95% Wilson interval."""

    model_config = ConfigDict(frozen=True)

    pairs: int
    accuracy: float
    low: float
    high: float


class Bin(BaseModel):
    """Pairs whose winner the judge gives a chance in [low, high], and how often it is right."""

    model_config = ConfigDict(frozen=True)

    low: float
    high: float
    pairs: int
    confidence: float
    accuracy: float


class Bos(BaseModel):
    """What a beginning-of-text token changes: scores at most by `delta`, winners in `flips`."""

    model_config = ConfigDict(frozen=True)

    delta: float
    flips: float


class Invariance(BaseModel):
    """Largest change of a score when it should not change; `bos` None: there is no such token."""

    model_config = ConfigDict(frozen=True)

    padding_left: float
    padding_right: float
    order: float
    trainer: float
    bos: Bos | None


class Panel(BaseModel):
    """The verdict and its numbers. A tie is lost; `longer_wins` is what length alone gets."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    passed: bool
    reasons: list[str]
    thresholds: Thresholds
    held_out: Share
    slices: dict[str, Share]
    ece: float
    reliability: list[Bin]
    chosen_mean: float
    chosen_std: float
    rejected_mean: float
    rejected_std: float
    longer_wins: float
    length_correlation: float
    invariance: Invariance


def judge_the_judge(
    pairs: Sequence[ScoredPair], invariance: Invariance, thresholds: Thresholds
) -> Panel:
    """Compute the panel from scored pairs (at least one) and the measured invariances."""
    share, reliability = accuracy(pairs), bins(pairs)
    ece = sum(b.pairs * abs(b.confidence - b.accuracy) for b in reliability) / len(pairs)
    reasons = list(_reasons(share, ece, invariance, thresholds))
    return Panel(
        passed=not reasons,
        reasons=reasons,
        thresholds=thresholds,
        held_out=share,
        slices={name: accuracy(rows) for name, rows in slices(pairs).items()},
        ece=ece,
        reliability=reliability,
        chosen_mean=fmean(pair.chosen for pair in pairs),
        chosen_std=pstdev(pair.chosen for pair in pairs),
        rejected_mean=fmean(pair.rejected for pair in pairs),
        rejected_std=pstdev(pair.rejected for pair in pairs),
        longer_wins=fmean(pair.chosen_length > pair.rejected_length for pair in pairs),
        length_correlation=correlation(
            [pair.margin for pair in pairs],
            [float(pair.chosen_length - pair.rejected_length) for pair in pairs],
        ),
        invariance=invariance,
    )


def accuracy(pairs: Sequence[ScoredPair]) -> Share:
    """How often the better response scores higher."""
    wins = sum(pair.margin > 0 for pair in pairs)
    low, high = wilson(wins / len(pairs), len(pairs))
    return Share(pairs=len(pairs), accuracy=wins / len(pairs), low=low, high=high)


def slices(pairs: Sequence[ScoredPair]) -> Mapping[str, list[ScoredPair]]:
    """The pairs by source, and by which response is longer."""
    found: dict[str, list[ScoredPair]] = {}
    for pair in pairs:
        gap = pair.chosen_length - pair.rejected_length
        length = "longer" if gap > 0 else "shorter" if gap < 0 else "as long"
        found.setdefault(f"source: {pair.source}", []).append(pair)
        found.setdefault(f"chosen is {length}", []).append(pair)
    return dict(sorted(found.items()))


def bins(pairs: Sequence[ScoredPair]) -> list[Bin]:
    """Reliability of the judge's confidence in its winner, sigmoid(|margin|), in [0.5, 1].

    The confidence of the chosen response alone would be calibrated against a constant: in
    every pair the chosen one is the better.
    """
    members: list[list[tuple[float, bool]]] = [[] for _ in range(BINS)]
    for pair in pairs:
        confidence = sigmoid(abs(pair.margin))
        at = min(BINS - 1, int((confidence - 0.5) * 2 * BINS))
        members[at].append((confidence, pair.margin > 0))
    return [
        Bin(
            low=0.5 + at / (2 * BINS),
            high=0.5 + (at + 1) / (2 * BINS),
            pairs=len(rows),
            confidence=fmean(confidence for confidence, _ in rows),
            accuracy=fmean(right for _, right in rows),
        )
        for at, rows in enumerate(members)
        if rows
    ]


def sigmoid(value: float) -> float:
    """The chance that a response with this margin wins; does not overflow."""
    return 0.5 * (1 + math.tanh(value / 2))


def correlation(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Pearson's correlation; 0 where one of them does not vary."""
    mean_x, mean_y = fmean(xs), fmean(ys)
    spread = math.sqrt(sum((x - mean_x) ** 2 for x in xs) * sum((y - mean_y) ** 2 for y in ys))
    covered = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return covered / spread if spread else 0.0


def _reasons(share: Share, ece: float, invariance: Invariance, thresholds: Thresholds) -> list[str]:
    reasons = []
    if not share.accuracy >= thresholds.min_accuracy:
        reasons.append(
            f"held-out accuracy {share.accuracy:.3f} is below {thresholds.min_accuracy}"
            f" ({share.pairs} pairs)"
        )
    if not ece <= thresholds.max_ece:
        reasons.append(f"calibration error {ece:.3f} is above {thresholds.max_ece}")
    for name in ("padding_left", "padding_right", "order", "trainer"):
        delta = getattr(invariance, name)
        if not delta <= thresholds.tolerance:
            what = name.replace("_", " on the ")
            reasons.append(f"{what} changes a score by {delta:.2g}, over {thresholds.tolerance}")
    if invariance.bos and not invariance.bos.flips <= thresholds.max_bos_flips:
        reasons.append(f"a BOS token changes the winner of {invariance.bos.flips:.1%} of the pairs")
    return reasons
