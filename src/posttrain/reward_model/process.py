"""The process judge: steps, their labels, and a model that is read wherever a step ends.

The padding token, which no text holds, marks the places: one where the prompt ends and one after
each step, inside the attention mask. The last step bears the end-of-turn token. So a row of token
ids is all there is to a solution, and its steps can be turned round.
Shapes: B rows, T columns, S steps of a row.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self

import torch
from datasets import Dataset
from peft import get_peft_model
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid
from transformers import PreTrainedTokenizerBase, Trainer, TrainingArguments

from posttrain.engines.likelihood import pad_right
from posttrain.errors import DataError, Fault
from posttrain.hf_trainer import JournalCallback, adapter, trainer_arguments
from posttrain.policies import batch_ids, chat_texts
from posttrain.records import Preference
from posttrain.reward_model.judge import RewardModelJudge, TokenPair, check_pad_token
from posttrain.reward_model.kinds import Work
from posttrain.reward_model.kinds.process import Reduction
from posttrain.reward_model.pooling import load_scoring_model
from posttrain.training import row_order

CERTAIN = 1e-7
"""No solution is surer than this to be right: log-odds stay finite (assumed)."""


class StepRow(NamedTuple):
    """Token ids of a solution with its marks, and whether each of its steps is right."""

    ids: list[int]
    right: list[bool]


def steps_of(response: str) -> list[str]:
    """The lines that are not blank; the response itself where there is none."""
    return [line for line in response.splitlines() if line.strip()] or [response]


def step_ids(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str], solutions: Sequence[Sequence[str]]
) -> list[list[int]]:
    """Prompt, mark, step, mark, ..., last step, end of turn, mark; each step tokenised alone.

    A mark that a text spells out is left out of it.
    """
    mark, end = int(tokenizer.pad_token_id), int(tokenizer.eos_token_id)
    texts = [*chat_texts(tokenizer, [*prompts]), *(step for steps in solutions for step in steps)]
    plain = [[one for one in ids if one != mark] for ids in batch_ids(tokenizer, texts)]
    opened, written = plain[: len(prompts)], iter(plain[len(prompts) :])
    rows = []
    for prompt, steps in zip(opened, solutions, strict=True):
        ids = [*prompt, mark]
        for at in range(len(steps)):
            ids += [*next(written), *([end] if at == len(steps) - 1 else []), mark]
        rows.append(ids)
    return rows


def turned(ids: Sequence[int], mark: int) -> list[int]:
    """The same row with its steps last to first."""
    parts: list[list[int]] = [[]]
    for token in ids:
        parts[-1].append(token)
        if token == mark:
            parts.append([])
    prompt, *steps = parts[:-1]
    return [*prompt, *(token for step in reversed(steps) for token in step)]


def first_departure(chosen: Sequence[str], rejected: Sequence[str]) -> int | None:
    """The first step of `rejected` that `chosen` does not have in its place; None: they are alike.

    A side that only stops too early goes wrong at its last step.
    """
    for at, step in enumerate(rejected):
        if at >= len(chosen) or step != chosen[at]:
            return at
    return len(rejected) - 1 if len(rejected) < len(chosen) else None


def labelled_rows(work: Work) -> list[StepRow]:
    """Each distinct solution of the pairs once, with its labels; DataError if none is wrong.

    Of a solution that stands in several pairs, a step is right if one of them says so.
    """
    check_pad_token(work.tokenizer, work.policy)
    found: dict[tuple[str, tuple[str, ...]], list[bool]] = {}
    for row in (pair.row for pair in work.pairs):
        chosen, rejected = steps_of(row.chosen), steps_of(row.rejected)
        at = first_departure(chosen, rejected)
        sides = [(chosen, len(chosen))] if at is None else [(chosen, len(chosen)), (rejected, at)]
        for steps, sound in sides:
            right = [place < sound for place in range(len(steps))]
            known = found.setdefault((row.prompt, tuple(steps)), right)
            known[:] = [a or b for a, b in zip(known, right, strict=True)]
    rows = step_ids(work.tokenizer, [p for p, _ in found], [steps for _, steps in found])
    made = [StepRow(*each) for each in zip(rows, found.values(), strict=True)]
    fitting = [row for row in made if len(row.ids) <= work.config.max_length]
    if all(all(row.right) for row in fitting):
        where, why = str(work.policy), "no rejected side that fits departs from its chosen one"
        raise DataError(Fault("no wrong steps to learn from", where, why, "give other preferences"))
    return fitting


class StepCollator:
    """Rows padded on the right; with `both`, the turned rows stand below."""

    def __init__(self, mark: int, *, both: bool) -> None:
        self.mark = mark
        self.both = both

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        ids = [row["ids"] for row in rows]
        ids += [turned(row, self.mark) for row in ids] if self.both else []
        padded = pad_right(ids, self.mark, torch.device("cpu"))
        right = [float(each) for row in rows for each in row["right"]]
        return {
            "input_ids": padded.ids_BT,
            "attention_mask": padded.mask_BT,
            "right": torch.tensor(right),
        }


class StepTrainer(Trainer):  # type: ignore[misc]
    """Cross-entropy of each step's value with its label, averaged over the steps of a batch."""

    def __init__(self, *, mark: int, both: bool, **given: Any) -> None:
        super().__init__(**given)
        self.mark = mark
        self.both = both
        # Else the Trainer takes the loss for a sum over a whole batch of micro-batches.
        self.model_accepts_loss_kwargs = False

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        ids_BT, mask_BT = inputs["input_ids"], inputs["attention_mask"]
        outputs = model(input_ids=ids_BT, attention_mask=mask_BT)
        values = fused(marked(outputs.logits, ids_BT, mask_BT, self.mark), both=self.both)
        loss = binary_cross_entropy_with_logits(torch.cat(values).float(), inputs["right"])
        return (loss, outputs) if return_outputs else loss


def step_trainer(work: Work, rows: Sequence[StepRow], *, both: bool) -> StepTrainer:
    """The trainer over the rows, in the order in which they are trained on."""
    config, mark = work.config, int(work.tokenizer.pad_token_id)
    order = row_order([len(row.ids) for row in rows], config)
    columns = {"ids": [row.ids for row in rows], "right": [row.right for row in rows]}
    given = trainer_arguments(config, work.journal.scratch, len(order))
    model: Any = load_scoring_model(work.policy, "steps")
    settings = adapter(config, "SEQ_CLS")
    return StepTrainer(
        mark=mark,
        both=both,
        model=get_peft_model(model, settings) if settings else model,
        args=TrainingArguments(
            **{name: value for name, value in given.items() if name != "max_length"},
            remove_unused_columns=False,
        ),
        data_collator=StepCollator(mark, both=both),
        train_dataset=Dataset.from_dict(columns).select(order),
        callbacks=[JournalCallback(work.journal, config.checkpoint_every)],
    )


def marked(logits_BT: Tensor, ids_BT: Tensor, mask_BT: Tensor, mark: int) -> list[Tensor]:
    """The values [S] of the steps of each row: those at its marks but the first."""
    at_BT = (ids_BT == mark) & mask_BT.bool()
    counts = at_BT.sum(dim=1).tolist()
    return [part[1:] for part in torch.split(logits_BT[at_BT], counts)]


def fused(values: Sequence[Tensor], *, both: bool) -> list[Tensor]:
    """The values of the steps; with `both`, the means with those of the turned rows below."""
    if not both:
        return [*values]
    half = len(values) // 2
    return [(f + b.flip(0)) / 2 for f, b in zip(values[:half], values[half:], strict=True)]


def reduced(values: Sequence[float], reduction: Reduction) -> float:
    """Log-odds that a solution is right, of those of its steps.

    If one of two solutions is right, the chance that it is the first is sigmoid(a - b).
    """
    if reduction == "last":
        return values[-1]
    if reduction == "min":
        return min(values)
    log_right = min(-CERTAIN, float(logsigmoid(torch.tensor(values, dtype=torch.double)).sum()))
    return log_right - math.log(-math.expm1(log_right))


class ProcessJudge(RewardModelJudge):
    """A judge of steps, and of responses by their steps."""

    def __init__(
        self,
        model: Any,
        tokenizer: PreTrainedTokenizerBase,
        *,
        both: bool = False,
        reduction: Reduction = "min",
        batch: int = 64,
        tokens: int = 0,
    ) -> None:
        super().__init__(model, tokenizer, batch=batch, tokens=tokens)
        self.both = both
        self.reduction = reduction

    def tokenised(self, rows: Sequence[Preference]) -> list[TokenPair]:
        """Both sides of each preference, with their marks."""
        prompts = [row.prompt for row in rows]
        chosen = step_ids(self.tokenizer, prompts, [steps_of(row.chosen) for row in rows])
        rejected = step_ids(self.tokenizer, prompts, [steps_of(row.rejected) for row in rows])
        return [TokenPair(*sides) for sides in zip(rows, chosen, rejected, strict=True)]

    def with_model(self, model: Any, *, batch: int, tokens: int) -> Self:
        """The same judge with another model, in passes of another size."""
        return type(self)(
            model,
            self.tokenizer,
            both=self.both,
            reduction=self.reduction,
            batch=batch,
            tokens=tokens,
        )

    def score(self, prompts: Sequence[str], responses: Sequence[str]) -> list[float]:
        """Log-odds that each response is right, by its steps; NaN beyond the model's context."""
        rows = step_ids(self.tokenizer, prompts, [steps_of(response) for response in responses])
        return [reduced(each, self.reduction) if each else math.nan for each in self._known(rows)]

    def score_steps(
        self, prompts: Sequence[str], solutions: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        """The chance in [0, 1] that each step is right; NaN beyond the model's context."""
        values = self._known(step_ids(self.tokenizer, prompts, solutions))
        return [
            [0.5 * (1 + math.tanh(value / 2)) for value in each] or [math.nan] * len(steps)
            for each, steps in zip(values, solutions, strict=True)
        ]

    def score_ids(
        self, rows: Sequence[Sequence[int]], side: Literal["left", "right"] = "right"
    ) -> list[float]:
        """Scores of token rows with marks."""
        return [reduced(each, self.reduction) for each in self.values(rows, side)]

    @torch.no_grad()
    def values(
        self, rows: Sequence[Sequence[int]], side: Literal["left", "right"] = "right"
    ) -> list[list[float]]:
        """Log-odds of the steps of each row, in batches of like length."""
        mark = int(self.tokenizer.pad_token_id)
        found: list[list[float]] = [[] for _ in rows]
        for chosen in self._batches([len(row) for row in rows]):
            given = [rows[at] for at in chosen]
            given += [turned(row, mark) for row in given] if self.both else []
            ids_BT, mask_BT = self._padded(given, side)
            logits_BT = self.model(input_ids=ids_BT, attention_mask=mask_BT).logits.float()
            values = fused(marked(logits_BT, ids_BT, mask_BT, mark), both=self.both)
            for at, own in zip(chosen, values, strict=True):
                found[at] = own.tolist()
        return found

    def _known(self, rows: Sequence[Sequence[int]]) -> list[list[float]]:
        """The values of rows within the context; none of longer ones."""
        fitting = [at for at, row in enumerate(rows) if len(row) <= self.context]
        found: list[list[float]] = [[] for _ in rows]
        for at, own in zip(fitting, self.values([rows[at] for at in fitting]), strict=True):
            found[at] = own
        return found
