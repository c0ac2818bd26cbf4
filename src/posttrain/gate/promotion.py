"""Whom a challenger meets, and what becomes of it in the registry."""

import sys
from pathlib import Path
from typing import NamedTuple

from posttrain.artifacts import read_manifest
from posttrain.gate.comparison import read_item_scores
from posttrain.gate.verdict import Baseline, Outcome, Reached
from posttrain.registry import CHAMPION, NONE, ItemScores, Registry, RegistryError

ROLLED_BACK = "the policy was rolled back by hand; it is not promoted again"


class Entry(NamedTuple):
    """A judged policy as it is registered; `scores` is the digest of its scores folder."""

    policy: Path
    scores: str
    item_scores: ItemScores
    upload: bool


class Settled(NamedTuple):
    """How the registry stands after the gate; `champion` is a policy digest."""

    champion: str | None
    promotion: str
    registry: Reached


AWAY = Settled(None, "the registry cannot be used now; run the gate again", "unreachable")


class Opponent(NamedTuple):
    """Whom the challenger is compared with, and what already speaks against a pass."""

    baseline: Baseline
    scores: ItemScores
    objections: list[str]


def opened(uri: str, model: str) -> Registry | None:
    """The registry; None where none is configured, and where it is away (which is told)."""
    if not uri:
        return None
    try:
        return Registry(uri, model)
    except RegistryError as error:
        print(f"gate: {error}", file=sys.stderr)
        return None


def find_opponent(
    registry: Registry | None, champion: Path, digest: str
) -> tuple[Opponent, Registry | None]:
    """The registry's champion, else the stand-in; a registry that fails is given up.

    A policy that is champion already meets the one it replaced, so that judging it again gives
    the same verdict.
    """
    manifest = read_manifest(champion)
    baseline = Baseline(kind="stand_in", policy=None, scores=manifest.digest)
    stand_in = Opponent(baseline, read_item_scores(champion), [])
    if registry is None:
        return stand_in, None
    try:
        known, holder = registry.version_of(digest), registry.holder(CHAMPION)
        objections = [ROLLED_BACK] if known and known.rolled_back else []
        if holder and holder.policy == digest:
            holder = None if holder.replaced == NONE else registry.version(holder.replaced)
        if holder is None:
            return stand_in._replace(objections=objections), registry
        baseline = Baseline(kind="champion", policy=holder.policy, scores=holder.scores)
        return Opponent(baseline, registry.item_scores(holder), objections), registry
    except RegistryError as error:
        print(f"gate: {error}", file=sys.stderr)
        return stand_in, None


def settle(
    registry: Registry | None, outcome: Outcome, entry: Entry, *, configured: bool
) -> Settled:
    """Register the policy and move the aliases as the verdict says."""
    if not configured:
        return Settled(None, "no registry is configured", "none")
    if registry is None:
        return AWAY
    try:
        version = registry.register(
            entry.policy, entry.scores, entry.item_scores, upload=entry.upload
        )
        if outcome == "pass":
            registry.promote(version)
        holder = registry.holder(CHAMPION)
        if holder is None or holder.number != version.number:
            registry.challenge(version)
    except RegistryError as error:
        print(f"gate: {error}", file=sys.stderr)
        return AWAY
    stays = "the champion alias stays where it is"
    promotion = "the policy is champion" if outcome == "pass" else stays
    return Settled(holder.policy if holder else None, promotion, "reached")
