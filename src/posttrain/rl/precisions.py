"""Precisions: the number formats in which a model draws and learns.

`role` is `rollout` or `train`. To add one, write the function and a line in PRECISIONS.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

Role = Literal["rollout", "train"]
Precision = Callable[..., AbstractContextManager[Any]]


def native(_model: Any, _role: Role, /) -> AbstractContextManager[Any]:
    """As the model is stored."""
    return nullcontext()


PRECISIONS: dict[str, Precision] = {"native": native}
