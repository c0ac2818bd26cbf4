"""The learner: lessons in, one or more steps of the optimiser out.

Only rollouts that have a gradient are read. Shapes: B completions, T tokens.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from posttrain.engines.likelihood import Row
from posttrain.errors import DataError, Fault
from posttrain.rl.adapters import load_trainee
from posttrain.rl.crew import add_gradients, exchange, first_says, hear, place, share
from posttrain.rl.experience import Lesson
from posttrain.rl.hooks import Hook, UpdateFacts
from posttrain.rl.ledger import OWN
from posttrain.rl.likelihoods import Likelihoods
from posttrain.rl.losses import LossBatch, PolicyLoss, Totals, kl_estimate, seen_mean
from posttrain.rl.optimised import restore_into, tensors_of
from posttrain.rl.padding import advantages, like
from posttrain.rl.precisions import native
from posttrain.rl.rollout import Rollout
from posttrain.rl.sharding import copy_whole, gathered

if TYPE_CHECKING:
    from posttrain.rl.config import RLConfig

DONE: tuple[str, tuple[Any, ...]] = ("done", ())


class Learner:
    """A policy in float32 with its optimiser, and the reference when somebody asks for it.

    `precision`: as in `posttrain.rl.precisions`, for the forward pass of training.
    """

    def __init__(
        self,
        config: "RLConfig",
        folder: Path,
        loss: PolicyLoss,
        hooks: Sequence[Hook] = (),
        precision: Callable[..., AbstractContextManager[Any]] = native,
    ) -> None:
        self.config, self.loss, self.hooks = config, loss, hooks
        trainee = load_trainee(folder, config)
        self.accelerator, self.policy, self.model, self.weights, self.whole = trainee
        self.reader = Likelihoods(config, folder, trainee, precision)
        optimizer = torch.optim.AdamW(
            self.weights.values(),
            lr=config.learning_rate,
            weight_decay=config.weight_decay,
            fused=True,
        )
        self.optimizer = self.accelerator.prepare(optimizer)

    def update(self, lessons: Sequence[Lesson], learning_rate: float) -> dict[str, float]:
        """Learn from the lessons of one step; mean metrics, empty when nothing had a gradient."""
        count, parts = len(lessons), self.config.minibatches
        bounds = [count * part // parts for part in range(parts + 1)]
        slices = [range(*pair) for pair in pairwise(bounds)]
        passes = [part for part in slices if any(lessons[i].learn for i in part)]
        passes = passes * self.config.ppo_epochs
        old = self._old_logps(lessons, single=len(passes) == 1)
        found = [self._step(lessons, part, old, learning_rate) for part in passes]
        if not found:
            return {}
        self._check_mismatch(found[0]["mismatch/mean"])
        means = {name: sum(each[name] for each in found) / len(found) for name in found[0]}
        # After the first update the policy is no longer the one that wrote the rollouts.
        return means | {"mismatch/mean": found[0]["mismatch/mean"]}

    def _check_mismatch(self, gap: float) -> None:
        limit = self.config.max_mismatch
        if limit and not gap <= limit:
            raise DataError(
                Fault(
                    f"drawn and trained log-probs differ by {gap:.3g} nats a token",
                    "rl.max_mismatch",
                    f"the limit is {limit}; the engine may hold old weights or another precision",
                    "see `mismatch/mean` in the curves; recompute, or correct by importance",
                )
            )

    def _step(
        self,
        lessons: Sequence[Lesson],
        part: range,
        old: dict[int, Sequence[float]],
        learning_rate: float,
    ) -> dict[str, float]:
        """One step of the optimiser on the lessons `part` points at, micro-batch by micro-batch."""
        learnt = [i for i in part if lessons[i].learn]
        totals = Totals(
            tokens=sum(lessons[i].rollout.learnable for i in part),
            rows=len(part),
            max_completion_length=self.config.max_new_tokens,
            seen=sum(lessons[i].rollout.learnable for i in learnt),
        )
        mine: defaultdict[str, float] = defaultdict(float)
        weights: list[Tensor] = []
        rows = share(self.reader.rows({i: lessons[i].rollout for i in learnt}), place())
        for chunk in self.reader.chunks(rows):
            if chunk is self.reader.idle:
                scores_BT, _, _ = self.reader.scores(self.model, chunk)
                self.accelerator.backward(0 * scores_BT.sum())
                continue
            batch, metrics = self._batch(lessons, chunk, old, totals)
            loss = self.loss(batch)
            self.accelerator.backward(loss.value)
            mine["loss"] += loss.value.item()
            for name, value in (loss.metrics | metrics).items():
                mine[name] += value.item()
            gap_BT = (batch.logp_BT.detach() - batch.behaviour_logp_BT) * batch.mask_BT
            weights.append(gap_BT.sum(dim=1)[~batch.external_B1[:, 0]].cpu())
        if not self.reader.sharded:
            add_gradients(self.weights.values())
        told = exchange((dict(mine), weights))
        names = dict.fromkeys(name for theirs, _ in told for name in theirs)
        sums = {name: sum(theirs.get(name, 0.0) for theirs, _ in told) for name in names}
        # Replayed and external tokens are not those of this policy: no fault if chances differ.
        drawn = sum(r.learnable for r in (lessons[i].rollout for i in learnt) if r.source in OWN)
        sums["mismatch/mean"] *= totals.seen / max(1, drawn)
        limit = self.config.max_grad_norm
        norm = gathered(self.accelerator.clip_grad_norm_(self.weights.values(), limit))
        facts = UpdateFacts(torch.cat([each for _, theirs in told for each in theirs]), len(part))
        for hook in self.hooks:
            factor = hook(facts)
            sums[f"hook/{name_of(hook)}"] = factor
            learning_rate *= factor
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        sums["grad_norm"] = float(norm)
        sums["update/skipped"] = float(not torch.isfinite(norm))
        if torch.isfinite(norm):
            self.optimizer.step()
        self.optimizer.zero_grad()
        return sums

    def _batch(
        self,
        lessons: Sequence[Lesson],
        chunk: list[Row],
        old: dict[int, Sequence[float]],
        totals: Totals,
    ) -> tuple[LossBatch, dict[str, Tensor]]:
        """What the loss reads of one micro-batch, and its share of the learner's own metrics."""
        config, mine = self.config, [lessons[row.place] for row in chunk]
        logp_BT, mask_BT, entropy_BT = self.reader.scores(
            self.model, chunk, entropy=config.entropy_bonus > 0
        )
        acted_BT = like(logp_BT, [lesson.rollout.acted for lesson in mine], 1.0).bool()
        known = [old[row.place] for row in chunk if row.place in old]
        batch = LossBatch(
            logp_BT=logp_BT,
            old_logp_BT=like(logp_BT, known) if known else logp_BT.detach(),
            advantage_BT=advantages(logp_BT, mine),
            mask_BT=mask_BT & acted_BT,
            totals=totals,
            behaviour_logp_BT=like(logp_BT, [each.rollout.behaviour_logps for each in mine]),
            external_B1=like(logp_BT[:, :1], [[each.rollout.source == "external"] for each in mine])
            > 0,
        )
        gap_BT = (logp_BT.detach() - batch.behaviour_logp_BT).abs()
        drawn_B1 = like(logp_BT[:, :1], [[each.rollout.source in OWN] for each in mine])
        metrics = {"mismatch/mean": seen_mean(gap_BT * drawn_B1, batch)}
        penalty_BT = torch.zeros_like(logp_BT)
        if config.kl_coefficient:
            with torch.no_grad(), self.reader.reference() as reference:
                reference_BT, _, _ = self.reader.scores(reference, chunk)
            kl_BT = kl_estimate(logp_BT, reference_BT, config.kl_estimator)
            metrics["kl"] = seen_mean(kl_BT.detach(), batch)
            penalty_BT = penalty_BT + config.kl_coefficient * kl_BT
        if entropy_BT is not None:
            weight_BT = like(logp_BT, [lesson.entropy_weight for lesson in mine], 1.0)
            metrics["entropy/trained"] = seen_mean(entropy_BT.detach(), batch)
            penalty_BT = penalty_BT - config.entropy_bonus * weight_BT * entropy_BT
        if config.kl_coefficient or entropy_BT is not None:
            batch = batch.penalised(penalty_BT)
        return batch, metrics

    def logps(self, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Log-probs of each rollout's tokens now; see `PolicyView`."""
        return self.reader.measured(self.policy.model, rollouts)

    def reference_logps(self, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """The same under the policy that the run began with; see `PolicyView`."""
        with self.reader.reference() as reference:
            return self.reader.measured(reference, rollouts)

    def gradient_norms(self, rollouts: Sequence[Rollout]) -> list[float]:
        """Squared gradient norms of the rollouts' log-probs; a backward pass for each."""
        found = []
        for rollout in rollouts:
            rows = self.reader.rows({0: rollout})
            logp_BT, mask_BT, _ = self.reader.scores(self.policy.model, rows)
            own_BT = like(logp_BT, [rollout.acted], 1.0) * mask_BT
            gradients = torch.autograd.grad((logp_BT * own_BT).sum(), list(self.whole.values()))
            found.append(sum(float(gradient.square().sum()) for gradient in gradients))
        return found

    def learn(self, batches: Sequence[Sequence[Lesson]], learning_rate: float) -> dict[str, float]:
        """One update for each batch; means of their metrics.

        In a crew all processes learn what process 0 is given, and `follow` does until it is done.
        """
        _, (batches, learning_rate) = first_says(("learn", (batches, learning_rate)))
        return self._learn(batches, learning_rate)

    def _learn(self, batches: Sequence[Sequence[Lesson]], learning_rate: float) -> dict[str, float]:
        found = [metrics for batch in batches if (metrics := self.update(batch, learning_rate))]
        self._tell_whole()
        hear()
        names = dict.fromkeys(name for metrics in found for name in metrics)
        return {name: fmean(m[name] for m in found if name in m) for name in names}

    def _old_logps(self, lessons: Sequence[Lesson], *, single: bool) -> dict[int, Sequence[float]]:
        """Log-probs before the update by lesson; empty where the update's own will do.

        No engine knows the policy's chances of another writer's tokens: these are measured.
        """
        rollouts = {i: lesson.rollout for i, lesson in enumerate(lessons) if lesson.learn}
        if single and self.config.old_logps == "recompute":
            return {}
        drawn = self.config.old_logps == "engine"
        own = {i for i, rollout in rollouts.items() if drawn and rollout.source != "external"}
        rest = [i for i in rollouts if i not in own]
        measured = self.reader.measured(self.model, [rollouts[i] for i in rest], together=True)
        return {i: rollouts[i].behaviour_logps for i in own} | {
            i: logp_T.tolist() for i, logp_T in zip(rest, measured, strict=True)
        }

    def tensors(self) -> dict[str, Tensor]:
        """Trainable weights and the optimiser's moments, for a checkpoint."""
        if self.reader.sharded:
            first_says(("tensors", ()))
        return self._tensors()

    def _tensors(self) -> dict[str, Tensor]:
        return tensors_of(self.weights, self.optimizer)

    def _tell_whole(self) -> None:
        """Let the policy that draws have the weights of now."""
        if self.reader.sharded:
            copy_whole(self.weights, self.whole)

    def follow(self) -> None:
        """Do what process 0 does with its learner, until it dismisses the crew."""
        orders: dict[str, Callable[..., Any]] = {
            "learn": self._learn,
            "restore": self._restore,
            "tensors": self._tensors,
        }
        while True:
            name, given = first_says(DONE)
            if name not in orders:
                return
            orders[name](*given)

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `tensors` returned; in a crew, process 0's."""
        _, (tensors,) = first_says(("restore", (tensors,)))
        self._restore(tensors)

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        restore_into(self.weights, self.optimizer, tensors)
        self._tell_whole()


def name_of(hook: Any) -> str:
    """The name of a function, its options bound or not."""
    return str(getattr(hook, "func", hook).__name__)
