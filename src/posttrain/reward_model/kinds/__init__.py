"""Kinds of judge: how one is made from preferences, and read back from its folder.

A kind is a small class. Its keyword-only parameters are its options, which `judge.json` keeps, so
that reading takes what making had. To add one, write the class and a line in KINDS; it need not
import torch before it is asked to work.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from posttrain.journal import Journal
from posttrain.reward_model.kinds.bradley_terry import BradleyTerry
from posttrain.reward_model.kinds.bt_adaptive_margin import AdaptiveMargin
from posttrain.reward_model.kinds.ce_rm import CeRm
from posttrain.reward_model.kinds.pairwise import Pairwise
from posttrain.reward_model.kinds.process import Process
from posttrain.reward_model.kinds.rubric import Rubric, Rules
from posttrain.reward_model.kinds.server import ServedJudge
from posttrain.reward_model.protocol import AnyJudge

if TYPE_CHECKING:
    from posttrain.reward_model.judge import TokenPair
    from posttrain.reward_model.stage import RewardModelConfig

__all__ = ["KINDS", "Kind", "Made", "Work"]


class Work(NamedTuple):
    """What a judge is made from: the pairs to learn from (the held-out ones are not among them),
    all within `max_length`, the policy's folder and its tokenizer. `folder` is the judge's own."""

    config: "RewardModelConfig"
    policy: Path
    tokenizer: Any
    pairs: "list[TokenPair]"
    folder: Path
    journal: Journal


class Made(NamedTuple):
    """What making it took; all zero for a judge that learns nothing.

    `trained` is the model in memory, where the judge is a model of one score for a conversation:
    the panel compares it with what its folder holds. `numbers` are the kind's own.
    """

    steps: int = 0
    epochs: float = 0.0
    tokens: int = 0
    shared_tokens: float = 0.0
    train_loss_first: float | None = None
    train_loss_last: float | None = None
    trained: Any = None
    numbers: Mapping[str, float] = {}


class Kind(Protocol):
    """A way to make a judge."""

    def make(self, work: Work) -> Made:
        """Write what the judge needs to `work.folder`."""

    def read(self, folder: Path) -> AnyJudge:
        """The judge of a folder that this kind has written; DataError where it is not one."""


KINDS: dict[str, Callable[..., Kind]] = {
    "bradley_terry": BradleyTerry,
    "bt_adaptive_margin": AdaptiveMargin,
    "process": Process,
    "rules": Rules,
    "rubric": Rubric,
    "ce_rm": CeRm,
    "pairwise": Pairwise,
    "server": ServedJudge,
}
