"""What may go wrong, and the exit code that tells an orchestrator what to do about it.

0 done · 1 a bug of ours · 2 configuration · 3 data · 75 transient or preempted (safe to retry).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong, told so that the reader can mend it."""

    what: str
    where: str
    why: str
    mend: str

    def __str__(self) -> str:
        return f"{self.what}\n  where: {self.where}\n  why:   {self.why}\n  mend:  {self.mend}"


class PosttrainError(Exception):
    """A failure that the user can act on; carries every fault found, not only the first."""

    exit_code = 1

    def __init__(self, *faults: Fault) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = faults

    def __reduce__(self) -> tuple[type["PosttrainError"], tuple[Fault, ...]]:
        """Keep the faults on the way from one process to another."""
        return type(self), self.faults


class ConfigError(PosttrainError):
    """An option, recipe or path is wrong; running again changes nothing."""

    exit_code = 2


class DataError(PosttrainError):
    """An artifact or a row is wrong: missing, damaged, half-written or of another type."""

    exit_code = 3


class TransientError(PosttrainError):
    """The work was sound but the world was not: preempted, disk full, service away."""

    exit_code = 75


def accepted(given: str, names: Iterable[str]) -> str:
    """Name what would have been accepted, the nearest first, for the `mend` of a fault."""
    known = sorted(names)
    near = get_close_matches(given, known, n=1)
    hint = f"did you mean `{near[0]}`? " if near else ""
    return f"{hint}accepted: {', '.join(known) or 'none'}"
