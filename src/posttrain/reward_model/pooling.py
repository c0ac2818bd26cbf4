"""How a reward model makes one score of a conversation.

`last` reads a scalar head at the last token, as Transformers' classifiers do (arXiv:2203.02155).
`product` lets every token have a chance to be right by such a head, and scores the log of the
product of those chances, which is how step scores are joined in arXiv:2305.20050: one slip in the
middle counts in full, and a pair teaches which token it was. `likelihood` has no head: the chance
of a token is the language model's own, so the judge begins with all that the policy knows (the
implicit reward of arXiv:2305.18290, without its reference). Scores of the latter two are nats
below 0, to be compared within a prompt: the prompt's own tokens take part. To add one, write the
class and a line in POOLINGS. `Steps` is that of the `process` kind, which makes its own scores.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    AutoConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import SequenceClassifierOutput

from posttrain.engines.likelihood import token_logps
from posttrain.reward_model.sharing import (
    BEGINNING,
    last_columns,
    side_masks,
    visible,
)

PoolingName = Literal["last", "product", "likelihood", "steps"]

PRIOR_LOG_ODDS = 2.0
"""Log-odds that a token is right where the head says nothing: else the length of a response would
outweigh what it says until the head has learnt otherwise."""


class Last:
    """Mixed into a sequence classifier with one output."""

    score: Any
    base_model: Any

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        parts: Tensor | None = None,
        **options: Any,
    ) -> SequenceClassifierOutput:
        """`logits` [B, 1]: the head at the last token; with `parts`, of rows that hold several
        conversations (`Packed`), those of each row's first, then of its second, and so on."""
        if parts is None:
            plain: Any = super()
            given = {"input_ids": input_ids, "attention_mask": attention_mask}
            found: SequenceClassifierOutput = plain.forward(**given, **options)
            return found
        states_PTH = self.base_model(**packed_inputs(input_ids, parts, options)).last_hidden_state
        rows_P = torch.arange(len(parts), device=parts.device)
        ends = torch.cat([states_PTH[rows_P, last_P] for last_P in last_columns(parts)])
        return SequenceClassifierOutput(logits=self.score(ends))


class Product:
    """Mixed into a sequence classifier with one output."""

    score: Any
    base_model: Any

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        parts: Tensor | None = None,
        **options: Any,
    ) -> SequenceClassifierOutput:
        """`logits` [B, 1]: the log of the product over the tokens that are not padding; with
        `parts`, as those of `last`."""
        if parts is None:
            given = {"input_ids": input_ids, "attention_mask": attention_mask, **options}
            sides = [attention_mask]
        else:
            given, sides = packed_inputs(input_ids, parts, options), side_masks(parts)
        states_BTH = self.base_model(**given).last_hidden_state
        right_BT = logsigmoid(self.score(states_BTH).float().squeeze(-1) + PRIOR_LOG_ODDS)
        sums = [(right_BT * side).sum(dim=1, keepdim=True) for side in sides]
        return SequenceClassifierOutput(logits=torch.cat(sums))


class Likelihood:
    """Mixed into a causal language model."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        parts: Tensor | None = None,
        **options: Any,
    ) -> SequenceClassifierOutput:
        """`logits` [B, 1]: the log-prob in nats of all tokens but the first; with `parts`, as
        those of `last`."""
        plain: Any = super()
        if parts is None:
            given = {"input_ids": input_ids, "attention_mask": attention_mask}
            logits_BTV = plain.forward(**given, **options).logits
            logps_BT = token_logps(logits_BTV[:, :-1], input_ids[:, 1:])
            seen_BT = attention_mask[:, 1:] * attention_mask[:, :-1]
            return SequenceClassifierOutput(logits=(logps_BT * seen_BT).sum(dim=1, keepdim=True))
        logits_PTV = plain.forward(**packed_inputs(input_ids, parts, options)).logits
        logps_PT = token_logps(logits_PTV[:, :-1], input_ids[:, 1:])
        # A rest does not follow the one before it in its row but the beginning's last token.
        follows_PT = (parts[:, 1:] == parts[:, :-1]).int()
        rows_P = torch.arange(len(parts), device=parts.device)
        begun_P = (parts == BEGINNING).sum(dim=1)
        before_PV = logits_PTV[rows_P, (begun_P - 1).clamp(min=0)]
        sums = []
        for part, side_PT in enumerate(side_masks(parts), 1):
            fork_P = (parts == part).int().argmax(dim=1)
            forked_P = token_logps(before_PV, input_ids[rows_P, fork_P]) * (begun_P > 0)
            sums.append((logps_PT * side_PT[:, 1:] * follows_PT).sum(dim=1) + forked_P)
        return SequenceClassifierOutput(logits=torch.cat(sums)[:, None])


class Steps:
    """Mixed into a sequence classifier with one output."""

    score: Any
    base_model: Any

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, **_: Any
    ) -> SequenceClassifierOutput:
        """`logits` [B, T]: the head at every token."""
        given = {"input_ids": input_ids, "attention_mask": attention_mask, "use_cache": False}
        states_BTH = self.base_model(**given).last_hidden_state
        return SequenceClassifierOutput(logits=self.score(states_BTH).squeeze(-1))


def packed_inputs(ids_PT: Tensor, parts_PT: Tensor, options: Mapping[str, Any]) -> dict[str, Any]:
    """What the model is given of rows that hold a pair each."""
    return {
        "input_ids": ids_PT,
        "attention_mask": visible(parts_PT),
        "position_ids": options["position_ids"],
        "use_cache": False,
    }


class Pooling(NamedTuple):
    """What is mixed into which classes of Transformers; `task` is PEFT's word for them."""

    mixin: type
    classes: Mapping[Any, Any]
    task: Literal["SEQ_CLS", "CAUSAL_LM"]


POOLINGS: dict[PoolingName, Pooling] = {
    "last": Pooling(Last, MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, "SEQ_CLS"),
    "product": Pooling(Product, MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, "SEQ_CLS"),
    "likelihood": Pooling(Likelihood, MODEL_FOR_CAUSAL_LM_MAPPING, "CAUSAL_LM"),
}

MODELS: dict[PoolingName, Pooling] = {
    **POOLINGS,
    "steps": Pooling(Steps, MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, "SEQ_CLS"),
}
"""What a folder may hold: `steps` gives no score of a conversation, but a value at every token."""


def load_scoring_model(folder: Path, pooling: PoolingName | None = None) -> PreTrainedModel:
    """A policy or judge folder as a model with one output, in float32.

    The folder's own `pooling` holds where none is given; the class keeps its name, so that the
    folder stays an ordinary one. Raises what Transformers raises.
    """
    config = AutoConfig.from_pretrained(folder, local_files_only=True, num_labels=1)
    config.pooling = pooling or getattr(config, "pooling", "last")
    chosen = MODELS[config.pooling]
    plain: Any = chosen.classes[type(config)]
    made: Any = type(plain.__name__, (chosen.mixin, plain), {})
    model: PreTrainedModel = made.from_pretrained(
        folder, config=config, dtype=torch.float32, local_files_only=True, use_safetensors=True
    )
    return model
