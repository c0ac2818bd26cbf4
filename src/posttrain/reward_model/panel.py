"""The panel: what a judge must show on preferences it never saw before anybody may use it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from posttrain.errors import DataError, Fault
from posttrain.reward_model.overoptimisation import Overoptimisation
from posttrain.reward_model.results import (
    SetResult,
    Share,
    correlation,
    share_of,
    sure_correlation,
)

PANEL = "panel.json"
BINS = 10
BALANCED = 20
PanelWord = Literal["passed", "failed", "none"]
LONGER, SHORTER = "chosen is longer", "chosen is shorter"


class Thresholds(BaseModel):
    """What the judge must reach."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_accuracy: float = Field(0.70, ge=0, le=1)
    max_ece: float = Field(0.15, ge=0, le=1)
    tolerance: float = Field(1e-3, gt=0)
    max_bos_flips: float = Field(0.02, ge=0, le=1)
    max_length_correlation: float = Field(0.95, ge=0, le=1)
    min_length_balanced: float = Field(0.55, ge=0, le=1)
    max_order_flips: float = Field(0.35, ge=0, le=1)


class ScoredPair(BaseModel):
    """One held-out preference as the judge sees it; lengths in tokens of the conversation.

    `markup` counts Markdown marks of a response; lengths are in characters for a judge without
    tokens.
    """

    model_config = ConfigDict(frozen=True)

    source: str
    chosen: float
    rejected: float
    chosen_length: int
    rejected_length: int
    chosen_markup: int = 0
    rejected_markup: int = 0

    @property
    def margin(self) -> float:
        return self.chosen - self.rejected


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
    """Largest change of a score when it should not change; None: the judge has no such thing."""

    model_config = ConfigDict(frozen=True)

    padding_left: float | None
    padding_right: float | None
    order: float
    trainer: float | None
    bos: Bos | None


class OrderSwap(BaseModel):
    """A pairwise judge shown every pair twice: `flips` is the share whose winner changes with the
    order, `first_wins` that in which the first place wins, 0.5 without a liking for places."""

    model_config = ConfigDict(frozen=True)

    flips: float
    first_wins: float


class Panel(BaseModel):
    """The verdict and its numbers. A tie is lost, and so is one of the `unscored` pairs, which lack
    a score; `longer_wins` is what length alone gets.

    `length_balanced` is the mean accuracy of pairs whose chosen response is longer and of those
    where it is shorter: length alone gets 0.5 there, whatever the pairs. None where either are few.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    passed: bool
    reasons: list[str]
    thresholds: Thresholds
    held_out: Share
    slices: dict[str, Share]
    ece: float
    reliability: list[Bin]
    unscored: int = 0
    chosen_mean: float
    chosen_std: float
    rejected_mean: float
    rejected_std: float
    longer_wins: float
    length_correlation: float
    length_balanced: float | None = None
    invariance: Invariance
    swap: OrderSwap | None = None
    sets: dict[str, SetResult] = {}
    overoptimisation: Overoptimisation | None = None


def judge_the_judge(
    pairs: Sequence[ScoredPair],
    invariance: Invariance,
    thresholds: Thresholds,
    *,
    swap: OrderSwap | None = None,
    sets: Mapping[str, SetResult] | None = None,
) -> Panel:
    """Compute the panel from scored pairs (at least one) and what else was measured."""
    share, reliability = accuracy(pairs), bins(pairs)
    known = [pair for pair in pairs if math.isfinite(pair.margin)]
    binned = max(1, len(known))
    ece = sum(b.pairs * abs(b.confidence - b.accuracy) for b in reliability) / binned
    parts = {name: accuracy(rows) for name, rows in slices(pairs).items()}
    gaps = [float(pair.chosen_length - pair.rejected_length) for pair in known]
    length = correlation([pair.margin for pair in known], gaps) if known else 0.0
    by_length = [parts[name] for name in (LONGER, SHORTER) if name in parts]
    enough = len(by_length) == 2 and min(part.pairs for part in by_length) >= BALANCED
    balanced = fmean(part.accuracy for part in by_length) if enough else None
    reasons = [
        *_reasons(share, ece, invariance, thresholds),
        *_biases(sure_correlation(length, len(known)), balanced, swap, thresholds),
        *_failed_sets(sets or {}),
    ]
    return Panel(
        passed=not reasons,
        reasons=reasons,
        thresholds=thresholds,
        held_out=share,
        slices=parts,
        ece=ece,
        reliability=reliability,
        unscored=len(pairs) - len(known),
        chosen_mean=fmean(pair.chosen for pair in known) if known else 0.0,
        chosen_std=pstdev(pair.chosen for pair in known) if known else 0.0,
        rejected_mean=fmean(pair.rejected for pair in known) if known else 0.0,
        rejected_std=pstdev(pair.rejected for pair in known) if known else 0.0,
        longer_wins=fmean(pair.chosen_length > pair.rejected_length for pair in pairs),
        length_correlation=length,
        length_balanced=balanced,
        invariance=invariance,
        swap=swap,
        sets=dict(sets or {}),
    )


def accuracy(pairs: Sequence[ScoredPair]) -> Share:
    """How often the better response scores higher."""
    return share_of([pair.margin > 0 for pair in pairs])


def slices(pairs: Sequence[ScoredPair]) -> Mapping[str, list[ScoredPair]]:
    """The pairs by source, by which response is longer and, if any do, by which has more markup."""
    found: dict[str, list[ScoredPair]] = {}
    styled = any(pair.chosen_markup != pair.rejected_markup for pair in pairs)
    for pair in pairs:
        gap = pair.chosen_length - pair.rejected_length
        length = LONGER if gap > 0 else SHORTER if gap < 0 else "chosen is as long"
        found.setdefault(f"source: {pair.source}", []).append(pair)
        found.setdefault(length, []).append(pair)
        if styled:
            more = pair.chosen_markup - pair.rejected_markup
            style = "more markup" if more > 0 else "less markup" if more < 0 else "as much markup"
            found.setdefault(f"chosen has {style}", []).append(pair)
    return dict(sorted(found.items()))


def bins(pairs: Sequence[ScoredPair]) -> list[Bin]:
    """Reliability of the judge's confidence in its winner, sigmoid(|margin|), in [0.5, 1].

    The confidence of the chosen response alone would be calibrated against a constant: in
    every pair the chosen one is the better. A pair without scores tells nothing of confidence.
    """
    members: list[list[tuple[float, bool]]] = [[] for _ in range(BINS)]
    for pair in pairs:
        if not math.isfinite(pair.margin):
            continue
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
        if delta is not None and not delta <= thresholds.tolerance:
            what = name.replace("_", " on the ")
            reasons.append(f"{what} changes a score by {delta:.2g}, over {thresholds.tolerance}")
    if invariance.bos and not invariance.bos.flips <= thresholds.max_bos_flips:
        reasons.append(f"a BOS token changes the winner of {invariance.bos.flips:.1%} of the pairs")
    return reasons


def _biases(
    length: float, balanced: float | None, swap: OrderSwap | None, thresholds: Thresholds
) -> Iterator[str]:
    """A score that is made of length, and a verdict that is made of places."""
    if not length <= thresholds.max_length_correlation:
        yield (
            "margins follow the difference in length: their correlation is surely above"
            f" {length:.3f}, and {thresholds.max_length_correlation} is allowed"
        )
    if balanced is not None and not balanced >= thresholds.min_length_balanced:
        yield (
            f"accuracy balanced by length {balanced:.3f} is below"
            f" {thresholds.min_length_balanced}: length alone gets 0.5"
        )
    if swap and not swap.flips <= thresholds.max_order_flips:
        yield (
            f"the order of two responses changes the winner of {swap.flips:.1%} of the pairs;"
            f" the first place wins {swap.first_wins:.1%}"
        )


def _failed_sets(sets: Mapping[str, SetResult]) -> Iterator[str]:
    for name, found in sets.items():
        if not found.passed:
            value = found.scores[found.headline]
            yield f"{name}: {found.headline} {value:.3f} is below {found.min_score}"


def read_panel(folder: Path) -> Panel:
    """The panel of a judge folder; DataError when there is none that can be read."""
    try:
        return Panel.model_validate_json((folder / PANEL).read_bytes())
    except (OSError, ValidationError) as error:
        raise DataError(
            Fault(
                "the judge has no panel",
                str(folder / PANEL),
                str(error).split("\n")[0],
                "make the judge with `posttrain reward_model`, which tests what it trained",
            )
        ) from None


def panel_word(folder: Path | None) -> PanelWord:
    """What a report says of the judge that a stage used; `none`: it used no judge."""
    if folder is None:
        return "none"
    return "passed" if read_panel(folder).passed else "failed"
