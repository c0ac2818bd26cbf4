"""Whether a policy's training data were checked against the suites that it is judged by."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from posttrain.artifacts import read_manifest
from posttrain.exposure import Standing, standing

UNCHECKED = (
    "unchecked: training data were not searched for its items; name it in `suites` of the filter"
    " `contamination` of curate, or let the gate only tell with `contamination: tell`"
)


def standings(scores: Path, policy: Path) -> dict[str, Standing]:
    """How the policy's training data stand to each suite that it has scores on."""
    manifest, exposure = read_manifest(scores), read_manifest(policy).exposure
    origins = manifest.report.get("origins", {})
    return {
        name: standing(origin, exposure, manifest.exposure)
        for name, origin in sorted(origins.items())
    }


def unchecked(decisive: Iterable[str], stands: Mapping[str, Standing]) -> list[str]:
    """Why suites that decide are no ground for a pass."""
    return [f"{name}: {UNCHECKED}" for name in decisive if stands.get(name) == "unchecked"]
