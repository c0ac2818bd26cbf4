"""Exposure: which tests the training data behind an artifact were checked against.

Curation states it of its rows, and the manifest of every artifact made of them carries it on, so
that the gate can read it wherever it runs.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from posttrain.artifacts import Manifest

EVALUATION = "evaluation"
GENERATED = "generated"

Standing = Literal["checked", "held out", "unchecked", "unknown"]
"""How a policy's data stand to a suite: searched for its items and freed of them; unable to hold
them, for they are generated and a text alone decides whether it is for training; not searched;
nobody can tell."""


class Exposure(BaseModel):
    """`checked` are the tests, as `name@version`, that all of the data were checked against; None:
    the data cannot hold any test. `unknown` are the tasks that brought in what nobody can tell of,
    such as a base model from outside."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    checked: tuple[str, ...] | None = None
    unknown: tuple[str, ...] = ()


def behind(inputs: Mapping[str, Sequence["Manifest"]]) -> Exposure | None:
    """What the inputs of a stage say together: a test counts as checked if all say so.

    Rows at the port `evaluation` are no training data; they say only whether they are the
    evaluation rows that the training data were checked against.
    """
    training = [m for port, found in inputs.items() if port != EVALUATION for m in found if m.files]
    if not training:
        return None
    told = [m.exposure for m in training if m.exposure]
    unknown = {m.task for m in training if not m.exposure} | {n for e in told for n in e.unknown}
    lists = [set(e.checked) for e in told if e.checked is not None]
    checked = set.intersection(*lists) if lists else None
    if checked is not None and EVALUATION in inputs:
        own = {name for m in inputs[EVALUATION] if m.exposure for name in m.exposure.checked or ()}
        checked = {name for name in checked if name in own or not _is_evaluation(name)}
    return Exposure(
        checked=None if checked is None else tuple(sorted(checked)), unknown=tuple(sorted(unknown))
    )


def standing(origin: str | None, policy: Exposure | None, scores: Exposure | None) -> Standing:
    """How the policy's data stand to a suite whose items come from `origin`: EVALUATION, GENERATED,
    `name@version`, or None where the scores do not tell."""
    if origin == GENERATED:
        return "held out"
    if origin is None or policy is None:
        return "unknown"
    if policy.checked is None:
        return "unknown" if policy.unknown else "held out"
    if origin == EVALUATION:
        tests = scores.checked if scores else None
        checked = any(map(_is_evaluation, tests or ()))
    else:
        checked = origin in policy.checked
    if not checked:
        return "unchecked"
    return "unknown" if policy.unknown else "checked"


def version_of(name: str, digest: str) -> str:
    """A test in a list of the checked."""
    return f"{name}@{digest[:16]}"


def _is_evaluation(name: str) -> bool:
    return name.startswith(f"{EVALUATION}@")
