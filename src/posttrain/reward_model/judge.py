"""The judge: a reward model that scores responses, once its panel has let it.

Scores are in nats of Bradley-Terry strength: sigmoid(a - b) is the chance that a beats b.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from pydantic import ValidationError
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from posttrain.errors import DataError, Fault
from posttrain.policies import batch_ids, chat_texts
from posttrain.records import Preference
from posttrain.reward_model.panel import PANEL, Panel
from posttrain.reward_model.pooling import load_scoring_model


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


class Judge:
    """A model with one output per conversation; its `pooling` says what that is made of."""

    def __init__(self, model: Any, tokenizer: PreTrainedTokenizerBase, *, batch: int = 64) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.batch = batch

    def score(self, prompts: Sequence[str], responses: Sequence[str]) -> list[float]:
        """One score per prompt and response; the order and the company of a row do not matter."""
        return self.score_ids(conversation_ids(self.tokenizer, prompts, responses))

    @torch.no_grad()
    def score_ids(
        self, rows: Sequence[Sequence[int]], side: Literal["left", "right"] = "right"
    ) -> list[float]:
        """Scores of token rows, in batches of like length, padded on the given side."""
        scores = [0.0] * len(rows)
        order = sorted(range(len(rows)), key=lambda i: (-len(rows[i]), i))
        for start in range(0, len(order), self.batch):
            chosen = order[start : start + self.batch]
            ids_BT, mask_BT = self._padded([rows[i] for i in chosen], side)
            logits_B1 = self.model(input_ids=ids_BT, attention_mask=mask_BT, use_cache=False).logits
            for index, score in zip(chosen, logits_B1.float().squeeze(-1).tolist(), strict=True):
                scores[index] = score
        return scores

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


def load_judge(folder: Path, *, require_panel: bool = True) -> Judge:
    """Read a judge folder, in float32; raise DataError when its panel failed or is not there."""
    if require_panel:
        panel = read_panel(folder)
        if not panel.passed:
            raise DataError(
                Fault(
                    "the judge did not pass its panel",
                    str(folder / PANEL),
                    "; ".join(panel.reasons),
                    "train it on more or better preferences, or set the thresholds of"
                    " `reward_model` to what is good enough",
                )
            )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model: Any = load_scoring_model(folder)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            Fault("not a judge folder", str(folder), str(error).split("\n")[0], "check the path")
        ) from None
    check_pad_token(tokenizer, folder)
    return Judge(model.to(device), tokenizer)


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
