"""The judge that is a reward model: one score for a conversation, read from its tokens.

Scores are in nats of Bradley-Terry strength: sigmoid(a - b) is the chance that a beats b.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from posttrain.errors import DataError, Fault
from posttrain.policies import batch_ids, chat_texts
from posttrain.records import Preference
from posttrain.reward_model.pooling import load_scoring_model
from posttrain.reward_model.sharing import Packed, can_share, width

PASS_TOKENS = {"cpu": 1024, "cuda": 65536}
"""Tokens of a forward pass, pads included; on a CPU more spills the caches (1.5 times slower at
8192 with a model of 2M weights); the GPU's is assumed."""

GROUP = 4
"""Responses of one prompt in a row: like ones share more, and its mask grows with the square of
its width (fastest of 4, 8 and 16 on a CPU)."""


def conversation_ids(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str], responses: Sequence[str]
) -> list[list[int]]:
    """Token ids of each prompt with its response, up to and with the end-of-turn token."""
    opened = batch_ids(tokenizer, chat_texts(tokenizer, list(prompts)))
    written = batch_ids(tokenizer, list(responses))
    return [
        [*prompt, *response, int(tokenizer.eos_token_id)]
        for prompt, response in zip(opened, written, strict=True)
    ]


class TokenPair(NamedTuple):
    """A preference and the token ids of its two conversations."""

    row: Preference
    chosen: list[int]
    rejected: list[int]

    @property
    def longest(self) -> int:
        return max(len(self.chosen), len(self.rejected))


def token_pairs(tokenizer: PreTrainedTokenizerBase, rows: Sequence[Preference]) -> list[TokenPair]:
    """Tokenise both sides of each preference as the judge will read them."""
    prompts = [row.prompt for row in rows]
    chosen = conversation_ids(tokenizer, prompts, [row.chosen for row in rows])
    rejected = conversation_ids(tokenizer, prompts, [row.rejected for row in rows])
    return [TokenPair(*sides) for sides in zip(rows, chosen, rejected, strict=True)]


class RewardModelJudge:
    """A model with one output per conversation; its `pooling` says what that is made of."""

    def __init__(
        self,
        model: Any,
        tokenizer: PreTrainedTokenizerBase,
        *,
        batch: int = 64,
        tokens: int = 0,
    ) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.batch = batch
        self.tokens = tokens or PASS_TOKENS.get(model.device.type, PASS_TOKENS["cuda"])

    @property
    def context(self) -> float:
        """The longest row, in tokens, that the model can read."""
        return getattr(self.model.config, "max_position_embeddings", None) or math.inf

    def tokenised(self, rows: Sequence[Preference]) -> list[TokenPair]:
        """Both sides of each preference as this judge reads them."""
        return token_pairs(self.tokenizer, rows)

    def with_model(self, model: Any, *, batch: int, tokens: int) -> Self:
        """The same judge with another model, in passes of another size."""
        return type(self)(model, self.tokenizer, batch=batch, tokens=tokens)

    def score(self, prompts: Sequence[str], responses: Sequence[str]) -> list[float]:
        """One score per prompt and response; the order and the company of a row do not matter.

        Equal rows are read once, and so is a prompt with several responses. NaN where the
        conversation is longer than the model's context.
        """
        rows = conversation_ids(self.tokenizer, prompts, responses)
        fitting = [at for at, row in enumerate(rows) if len(row) <= self.context]
        scores = [math.nan] * len(rows)
        shares = len({prompts[at] for at in fitting}) < len(fitting) and can_share(self.model)
        if shares:
            found = self._score_groups([(prompts[at], rows[at]) for at in fitting])
        else:
            found = self.score_ids([rows[at] for at in fitting])
        for at, score in zip(fitting, found, strict=True):
            scores[at] = score
        return scores

    @torch.no_grad()
    def score_ids(
        self, rows: Sequence[Sequence[int]], side: Literal["left", "right"] = "right"
    ) -> list[float]:
        """Scores of token rows, in batches of like length, padded on the given side."""
        scores = [0.0] * len(rows)
        for chosen in self._batches(list(map(len, rows))):
            ids_BT, mask_BT = self._padded([rows[i] for i in chosen], side)
            logits_B1 = self.model(input_ids=ids_BT, attention_mask=mask_BT, use_cache=False).logits
            for index, score in zip(chosen, logits_B1.float().squeeze(-1).tolist(), strict=True):
                scores[index] = score
        return scores

    @torch.no_grad()
    def _score_groups(self, rows: Sequence[tuple[str, list[int]]]) -> list[float]:
        """Scores of token rows, those of one prompt packed together in a row."""
        members: dict[str, set[tuple[int, ...]]] = {}
        for prompt, row in rows:
            members.setdefault(prompt, set()).add(tuple(row))
        groups = [
            group[at : at + GROUP]
            for group in map(sorted, members.values())
            for at in range(0, len(group), GROUP)
        ]
        found: dict[tuple[int, ...], float] = {}
        pad = int(self.tokenizer.pad_token_id)
        for chosen in self._batches(list(map(width, groups))):
            packed = Packed.of([groups[i] for i in chosen], pad)
            logits = self.model(**packed.inputs(self.model.device), use_cache=False).logits
            scores_KP = logits.float().view(-1, len(chosen)).tolist()
            for at, i in enumerate(chosen):
                found |= {row: scores_KP[part][at] for part, row in enumerate(groups[i])}
        return [found[tuple(row)] for _, row in rows]

    def _batches(self, widths: Sequence[int]) -> Iterator[list[int]]:
        """Indices in batches of like width, the widest first, each within `batch` and `tokens`."""
        order = sorted(range(len(widths)), key=lambda i: (-widths[i], i))
        while order:
            size = max(1, min(self.batch, self.tokens // widths[order[0]]))
            yield order[:size]
            order = order[size:]

    def _padded(
        self, rows: Sequence[Sequence[int]], side: Literal["left", "right"]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        longest = max(map(len, rows))
        ids_BT = torch.full((len(rows), longest), int(self.tokenizer.pad_token_id))
        mask_BT = torch.zeros_like(ids_BT)
        for at, row in enumerate(rows):
            where = slice(0, len(row)) if side == "right" else slice(longest - len(row), longest)
            ids_BT[at, where] = torch.tensor(row)
            mask_BT[at, where] = 1
        return ids_BT.to(self.model.device), mask_BT.to(self.model.device)


def check_pad_token(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Raise DataError when padding looks like the end of a turn.

    The classifier reads the last token that is not padding, so it would read one token early.
    """
    if tokenizer.pad_token_id in (None, tokenizer.eos_token_id):
        raise DataError(
            Fault(
                "the tokenizer has no padding token of its own",
                str(folder),
                f"a judge is read at the last token that is not {tokenizer.pad_token!r},"
                f" and conversations end with {tokenizer.eos_token!r}",
                "set pad_token in tokenizer_config.json to a token that no text holds",
            )
        )


class Stored(NamedTuple):
    """What a judge folder holds."""

    model: Any
    tokenizer: PreTrainedTokenizerBase


def read_scoring_model(folder: Path) -> Stored:
    """Read the model of a judge folder, in float32; raise DataError where there is none."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model: Any = load_scoring_model(folder)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            Fault("not a judge folder", str(folder), str(error).split("\n")[0], "check the path")
        ) from None
    check_pad_token(tokenizer, folder)
    return Stored(model.to(device), tokenizer)
