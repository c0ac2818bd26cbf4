"""Log-probs of rollouts under the policy that learns, or the one that the run began with.

A forward pass runs each prompt once for all its completions. Dropout stays off, so nothing here is
random. Shapes: B completions, T tokens.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from posttrain.engines.likelihood import Row, batches, pass_tokens, response_scores
from posttrain.engines.packing import packed_scores
from posttrain.engines.sampling import Sampling
from posttrain.policies import chat_ids, load_policy
from posttrain.rl.adapters import Trainee, check_packs
from posttrain.rl.crew import exchange, place, share
from posttrain.rl.rollout import Rollout
from posttrain.rl.sharding import are_shards

if TYPE_CHECKING:
    from posttrain.rl.config import RLConfig


class Likelihoods:
    """Reads rollouts with the trainee's model; `folder` is where the run began.

    `precision`: as in `posttrain.rl.precisions`.
    """

    def __init__(
        self,
        config: "RLConfig",
        folder: Path,
        trainee: Trainee,
        precision: Callable[..., AbstractContextManager[Any]],
    ) -> None:
        self.config, self.folder, self.precision = config, folder, precision
        self.accelerator, self.policy, self.model, weights, _ = trainee
        if config.packing:
            check_packs(self.model)
        self.sharded = are_shards(weights.values())
        self.pass_tokens = pass_tokens(config.micro_batch_tokens, self.model.device)
        pad = int(self.policy.tokenizer.pad_token_id)
        self.idle = [Row((pad,), (pad, pad), -1)]
        self._reference: Any = None

    def rows(self, rollouts: Mapping[int, Rollout]) -> list[Row]:
        """Token ids of the rollouts, each at its place."""
        texts = dict.fromkeys(rollout.prompt.text for rollout in rollouts.values())
        ids = {text: tuple(chat_ids(self.policy.tokenizer, text)) for text in texts}
        return [Row(ids[each.prompt.text], each.tokens, i) for i, each in rollouts.items()]

    def chunks(self, rows: Sequence[Row]) -> list[list[Row]]:
        """Micro-batches; with shards, as many as any other process has, idle ones at the end."""
        found = list(batches(rows, self.pass_tokens))
        most = max(exchange(len(found))) if self.sharded else len(found)
        return found + [self.idle] * (most - len(found))

    def scores(
        self, model: Any, chunk: list[Row], *, entropy: bool = False
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Log-probs [B, T], their mask and, if asked for, entropies; differentiable."""
        config, pad = self.config, int(self.policy.tokenizer.pad_token_id)
        recompute = config.gradient_checkpointing and torch.is_grad_enabled()
        score = packed_scores if config.packing else partial(response_scores, pad=pad)
        return score(
            model,
            chunk,
            temperature=config.temperature,
            sampling=Sampling(top_p=config.top_p, top_k=config.top_k),
            entropy=entropy,
            recompute=recompute,
            context=partial(self._context, model),
        )

    def measured(
        self, model: Any, rollouts: Sequence[Rollout], *, together: bool = False
    ) -> list[Tensor]:
        """Log-probs of each rollout; `together`: every process asks for the same ones."""
        rows = self.rows(dict(enumerate(rollouts)))
        mine = share(rows, place()) if together else rows
        own: dict[int, Tensor] = {}
        with torch.no_grad():
            for chunk in self.chunks(mine) if together else batches(mine, self.pass_tokens):
                logp_BT, _, _ = self.scores(model, chunk)
                for row, logp_T in zip(chunk, logp_BT.double().cpu(), strict=True):
                    own[row.place] = logp_T[: len(row.response)]
        own.pop(self.idle[0].place, None)
        found = own
        for theirs in exchange(own) if together else ():
            found = found | theirs
        return [found[place] for place in range(len(rows))]

    @contextmanager
    def reference(self) -> Iterator[Any]:
        """The policy that the run began with: a LoRA's own base, or the folder read once more."""
        if self.config.lora_rank:
            with self.model.disable_adapter():
                yield self.model
            return
        if self._reference is None:
            self._reference = load_policy(self.folder).model
        yield self._reference

    @contextmanager
    def _context(self, model: Any) -> Iterator[None]:
        with self.accelerator.autocast(), self.precision(model, "train"):
            yield
