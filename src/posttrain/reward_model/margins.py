"""Margins of the Bradley-Terry loss that come from the likelihoods of the model that learns.

Shapes: B pairs, R rows (the B chosen, then the B rejected), T columns, H hidden width, V tokens,
N response tokens of all rows.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from trl import RewardTrainer
from trl.trainer.reward_trainer import DataCollatorForPreference

from posttrain.engines.likelihood import token_logps
from posttrain.policies import batch_ids, chat_texts, load_policy
from posttrain.reward_model.judge import TokenPair
from posttrain.reward_model.kinds import Work
from posttrain.reward_model.kinds.bt_adaptive_margin import AdaptiveMargin


def adaptive_margin(gap_B: Tensor, reference_B: Tensor, strength: float, largest: float) -> Tensor:
    """`strength` times how much more of a gap there is than the reference has, in [0, largest]."""
    return (strength * (gap_B - reference_B)).clamp(0.0, largest).detach()


@torch.no_grad()
def mean_logps(
    backbone: Any, head_VH: Tensor, ids_RT: Tensor, mask_RT: Tensor, prompts_R: Tensor
) -> Tensor:
    """The mean log-prob in nats of each row's response, end of turn included; of no token 0.

    Logits are made for the responses alone.
    """
    states_RTH = backbone(input_ids=ids_RT, attention_mask=mask_RT, use_cache=False)[0]
    after_T = torch.arange(1, ids_RT.shape[1], device=ids_RT.device)
    written_RT = mask_RT[:, 1:].bool() & (after_T >= prompts_R[:, None])
    logits_NV = states_RTH[:, :-1][written_RT] @ head_VH.T.to(states_RTH.dtype)
    logps_N = token_logps(logits_NV, ids_RT[:, 1:][written_RT])
    rows_N = written_RT.nonzero()[:, 0]
    sums_R = torch.zeros(len(ids_RT), device=ids_RT.device).index_add(0, rows_N, logps_N)
    return sums_R / written_RT.sum(dim=1).clamp(min=1)


class MarginCollator:
    """TRL's batch of pairs, both sides in full, with what the margin of each is made of."""

    def __init__(self, pad: int) -> None:
        self.pairs = DataCollatorForPreference(pad_token_id=pad)

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        batch: dict[str, Tensor] = self.pairs([dict(row) for row in rows])
        batch["prompt_length"] = torch.tensor([row["prompt_length"] for row in rows])
        batch["reference_gap"] = torch.tensor([row["reference_gap"] for row in rows])
        return batch


class LiveMargin:
    """The margin of a batch under the model as it is; `head_VH` turns its states into logits."""

    def __init__(self, kind: AdaptiveMargin, model: Any, work: Work) -> None:
        self.kind = kind
        self.work = work
        if work.config.pooling == "likelihood":
            self.head_VH = model.get_output_embeddings().weight
        else:
            lender: Any = load_policy(work.policy, dtype=torch.float32).model
            self.head_VH = lender.get_output_embeddings().weight.detach().to(model.device)

    def columns(self, model: Any, pairs: Sequence[TokenPair]) -> dict[str, list[Any]]:
        """Each pair's prompt length in tokens, and the gap of the model as it begins, 0 if free."""
        tokenizer = self.work.tokenizer
        texts = chat_texts(tokenizer, [pair.row.prompt for pair in pairs])
        lengths = [len(ids) for ids in batch_ids(tokenizer, texts)]
        gaps = [0.0] * len(pairs)
        if self.kind.variant == "ref":
            collate, size = MarginCollator(int(tokenizer.pad_token_id)), 64
            rows = [
                {"chosen_ids": p.chosen, "rejected_ids": p.rejected, "prompt_length": n}
                | {"reference_gap": 0.0}
                for p, n in zip(pairs, lengths, strict=True)
            ]
            chunks = (collate(rows[at : at + size]) for at in range(0, len(rows), size))
            gaps = [gap for chunk in chunks for gap in self.gaps(model, chunk).tolist()]
        return {"prompt_length": lengths, "reference_gap": gaps}

    def gaps(self, model: Any, batch: Mapping[str, Tensor]) -> Tensor:
        """lbar(chosen) - lbar(rejected) [B] under the model as it is now."""
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        prompts_R = batch["prompt_length"].repeat(2).to(inner.device)
        ids_RT, mask_RT = (batch[name].to(inner.device) for name in ("input_ids", "attention_mask"))
        logps_R = mean_logps(inner.base_model, self.head_VH, ids_RT, mask_RT, prompts_R)
        chosen_B, rejected_B = logps_R.chunk(2)
        return chosen_B - rejected_B

    def of(self, model: Any, batch: Mapping[str, Tensor]) -> Tensor:
        """m of each pair [B], in nats."""
        gap_B = self.gaps(model, batch)
        reference_B = batch["reference_gap"].to(gap_B.device)
        return adaptive_margin(gap_B, reference_B, self.kind.strength, self.kind.largest)


class AdaptiveTrainer(RewardTrainer):  # type: ignore[misc]
    """TRL's, with a margin that is made anew at every step, on top of any that a pair states."""

    def __init__(self, live: LiveMargin, **given: Any) -> None:
        self.live = live
        super().__init__(**given)

    def compute_loss(self, model: Any, inputs: dict[str, Tensor], *rest: Any, **more: Any) -> Any:
        margin_B = self.live.of(self.accelerator.unwrap_model(model), inputs)
        own = {"prompt_length", "reference_gap"}
        given = {name: value for name, value in inputs.items() if name not in own}
        given["margin"] = margin_B + given.get("margin", 0.0)
        return super().compute_loss(model, given, *rest, **more)
