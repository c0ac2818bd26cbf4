"""How a reward model makes one score of what its head says at each token.

`last` reads the head at the last token, as Transformers' classifiers do. `product` lets every
token have a chance to be right, and the score is the log of the product of those chances, which is
how step scores are joined in arXiv:2305.20050; so one slip in the middle counts in full, and a
pair teaches which token it was. Scores of `product` are nats below 0, to be compared within a
prompt: the prompt's own tokens take part. To add one, write the class and a line in POOLINGS.
"""

from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid
from transformers import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    AutoConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import SequenceClassifierOutput

Pooling = Literal["last", "product"]

PRIOR_LOG_ODDS = 2.0
"""Log-odds that a token is right where the head says nothing: else the length of a response would
outweigh what it says until the head has learnt otherwise."""


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


POOLINGS: dict[Pooling, type | None] = {"last": None, "product": Product}


def load_classifier(folder: Path, pooling: Pooling | None = None) -> PreTrainedModel:
    """A policy or judge folder as a classifier with one output, in float32.

    The folder's own `pooling` holds where none is given; the class keeps its name, so that the
    folder stays an ordinary one. Raises what Transformers raises.
    """
    config = AutoConfig.from_pretrained(folder, local_files_only=True, num_labels=1)
    config.pooling = pooling or getattr(config, "pooling", "last")
    plain: Any = MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING[type(config)]
    mixin = POOLINGS[config.pooling]
    made: Any = type(plain.__name__, (mixin, plain), {}) if mixin else plain
    model: PreTrainedModel = made.from_pretrained(
        folder, config=config, dtype=torch.float32, local_files_only=True, use_safetensors=True
    )
    return model
