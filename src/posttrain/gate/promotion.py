"""Whom a challenger meets, and what becomes of it in the registry."""

import sys
import time
from pathlib import Path
from typing import NamedTuple

from posttrain.artifacts import read_manifest
from posttrain.gate.comparison import read_scores
from posttrain.gate.nights import Night, keep, key_of, levels
from posttrain.gate.verdict import Baseline, Outcome, Reached
from posttrain.registry import CHAMPION, NONE, Evidence, Registry, RegistryError

ROLLED_BACK = "the policy was rolled back by hand; it is not promoted again"


class Entry(NamedTuple):
    """A judged policy as it is registered; `scores` is the digest of its scores folder."""

    policy: Path
    scores: str
    evidence: Evidence
    upload: bool


class Settled(NamedTuple):
    """How the registry stands after the gate; `champion` is a policy digest."""

    champion: str | None
    promotion: str
    registry: Reached


AWAY = Settled(None, "the registry cannot be used now; run the gate again", "unreachable")


MOVED = "another policy became champion while this one was judged; run the gate again"


class Opponent(NamedTuple):
    """Whom the challenger is compared with, and what already speaks against a pass; `holder` is
    the policy that was champion then."""

    baseline: Baseline
    evidence: Evidence
    objections: list[str]
    holder: str | None


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
    stand_in = Opponent(baseline, read_scores(champion).evidence, [], None)
    if registry is None:
        return stand_in, None
    try:
        known, holder = registry.version_of(digest), registry.holder(CHAMPION)
        objections = [ROLLED_BACK] if known and known.rolled_back else []
        seen = holder.policy if holder else None
        if holder and holder.policy == digest:
            holder = None if holder.replaced == NONE else registry.version(holder.replaced)
        if holder is None:
            return stand_in._replace(objections=objections, holder=seen), registry
        baseline = Baseline(kind="champion", policy=holder.policy, scores=holder.scores)
        return Opponent(baseline, registry.evidence(holder), objections, seen), registry
    except RegistryError as error:
        print(f"gate: {error}", file=sys.stderr)
        return stand_in, None


def settle(
    registry: Registry | None, outcome: Outcome, entry: Entry, met: Opponent, *, configured: bool
) -> Settled:
    """Register the policy and move the aliases as the verdict says.

    The verdict counts against the champion that it was made with and no other, so nothing moves
    where that one has lost its place meanwhile.
    """
    if not configured:
        return Settled(None, "no registry is configured", "none")
    if registry is None:
        return AWAY
    try:
        version = registry.register(entry.policy, entry.scores, entry.evidence, upload=entry.upload)
        with registry.alone():
            holder = registry.holder(CHAMPION)
            now = holder.policy if holder else None
            if now != met.holder:
                return Settled(now, MOVED, "moved")
            if outcome == "pass":
                registry.promote(version)
                now = version.policy
            elif now != version.policy:
                registry.challenge(version)
            keep(registry, night_of(outcome, entry, version.policy, met, now))
    except RegistryError as error:
        print(f"gate: {error}", file=sys.stderr)
        return AWAY
    stays = "the champion alias stays where it is"
    return Settled(now, "the policy is champion" if outcome == "pass" else stays, "reached")


def night_of(
    outcome: Outcome, entry: Entry, policy: str, met: Opponent, champion: str | None
) -> Night:
    """What the history keeps of a judgement."""
    return Night(
        key=key_of(policy, entry.scores, met.baseline.scores),
        ended=time.time(),
        verdict=outcome,
        promoted=outcome == "pass" and champion == policy,
        policy=policy,
        opponent=met.baseline.policy or NONE,
        champion=champion or NONE,
        scores=levels(entry.evidence),
    )
