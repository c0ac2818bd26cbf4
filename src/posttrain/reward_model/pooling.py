"""How a reward model makes one score of a conversation.

`last` reads a scalar head at the last token, as Transformers' classifiers do (arXiv:2203.02155).
`product` lets every token have a chance to be right by such a head, and scores the log of the
product of those chances, which is how step scores are joined in arXiv:2305.20050: one slip in the
middle counts in full, and a pair teaches which token it was. `likelihood` has no head: the chance
of a token is the language model's own, so the judge begins with all that the policy knows (the
implicit reward of arXiv:2305.18290, without its reference). Scores of the latter two are nats
below 0, to be compared within a prompt: the prompt's own tokens take part. To add one, write the
class and a line in POOLINGS.
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

PoolingName = Literal["last", "product", "likelihood"]

PRIOR_LOG_ODDS = 2.0
"""Log-odds that a token is right where the head says nothing: else the length of a response would
outweigh what it says until the head has learnt otherwise."""


class Last:
    """Nothing is changed."""


class Product:
    """Mixed into a sequence classifier with one output."""

    score: Any
    base_model: Any

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, **options: Any
    ) -> SequenceClassifierOutput:
        """`logits` [B, 1]: the log of the product over the tokens that are not padding."""
        states_BTH = self.base_model(
            input_ids=input_ids, attention_mask=attention_mask, **options
        ).last_hidden_state
        right_BT = logsigmoid(self.score(states_BTH).float().squeeze(-1) + PRIOR_LOG_ODDS)
        return SequenceClassifierOutput(logits=(right_BT * attention_mask).sum(dim=1, keepdim=True))


class Likelihood:
    """Mixed into a causal language model."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, **options: Any
    ) -> SequenceClassifierOutput:
        """`logits` [B, 1]: the log-prob in nats of all tokens but the first."""
        plain: Any = super()
        given = {"input_ids": input_ids, "attention_mask": attention_mask}
        logits_BTV = plain.forward(**given, **options).logits
        logps_BT = token_logps(logits_BTV[:, :-1], input_ids[:, 1:])
        seen_BT = attention_mask[:, 1:] * attention_mask[:, :-1]
        return SequenceClassifierOutput(logits=(logps_BT * seen_BT).sum(dim=1, keepdim=True))


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


def load_scoring_model(folder: Path, pooling: PoolingName | None = None) -> PreTrainedModel:
    """A policy or judge folder as a model with one output, in float32.

    The folder's own `pooling` holds where none is given; the class keeps its name, so that the
    folder stays an ordinary one. Raises what Transformers raises.
    """
    config = AutoConfig.from_pretrained(folder, local_files_only=True, num_labels=1)
    config.pooling = pooling or getattr(config, "pooling", "last")
    chosen = POOLINGS[config.pooling]
    plain: Any = chosen.classes[type(config)]
    made: Any = type(plain.__name__, (chosen.mixin, plain), {})
    model: PreTrainedModel = made.from_pretrained(
        folder, config=config, dtype=torch.float32, local_files_only=True, use_safetensors=True
    )
    return model
