"""The learner: lessons in, one or more steps of the optimiser out.

A forward pass runs each prompt once for all its completions, and only rollouts that have a
gradient. Dropout stays off, so nothing here is random. Shapes: B completions, T tokens.
"""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator
from torch import Tensor

from posttrain.engines.likelihood import Row, batches, response_logps
from posttrain.policies import Policy, chat_ids, load_policy
from posttrain.rl.experience import Lesson
from posttrain.rl.losses import Loss, LossBatch, PolicyLoss, Totals, kl_estimate, seen_mean

if TYPE_CHECKING:
    from posttrain.rl.stage import RLConfig


class Learner:
    """A policy in float32 with its optimiser, and the reference when there is a KL term."""

    def __init__(self, config: "RLConfig", folder: Path, loss: PolicyLoss) -> None:
        on_gpu = torch.cuda.is_available()
        self.config, self.loss = config, loss
        self.accelerator = Accelerator(cpu=not on_gpu, mixed_precision="bf16" if on_gpu else "no")
        policy = load_policy(folder, dtype=torch.float32)
        model = with_adapter(policy.model, config) if config.lora_rank else policy.model
        self.weights = {name: p for name, p in model.named_parameters() if p.requires_grad}
        optimizer = torch.optim.AdamW(
            self.weights.values(),
            lr=config.learning_rate,
            weight_decay=config.weight_decay,
            fused=True,
        )
        self.model, self.optimizer = self.accelerator.prepare(model.eval(), optimizer)
        self.policy = Policy(self.model, policy.tokenizer)
        self.reference: Any = None
        if config.kl_coefficient:
            reads_adapter = config.lora_rank > 0
            self.reference = self.model if reads_adapter else load_policy(folder).model

    def update(self, lessons: Sequence[Lesson], learning_rate: float) -> dict[str, float]:
        """Learn from the lessons of one step; mean metrics, empty when nothing had a gradient."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        count, parts = len(lessons), self.config.minibatches
        bounds = [count * part // parts for part in range(parts + 1)]
        slices = [range(*pair) for pair in pairwise(bounds)]
        passes = [part for part in slices if any(lessons[i].learn for i in part)]
        passes = passes * self.config.ppo_epochs
        old = self._old_logps(lessons, single=len(passes) == 1)
        found = [self._step(lessons, part, old) for part in passes]
        if not found:
            return {}
        means = {name: sum(each[name] for each in found) / len(found) for name in found[0]}
        # After the first update the policy is no longer the one that wrote the rollouts.
        return means | {"mismatch/mean": found[0]["mismatch/mean"]}

    def _step(
        self, lessons: Sequence[Lesson], part: range, old: dict[int, Sequence[float]]
    ) -> dict[str, float]:
        """One step of the optimiser on the lessons `part` points at, micro-batch by micro-batch."""
        learnt = [i for i in part if lessons[i].learn]
        totals = Totals(
            tokens=sum(len(lessons[i].rollout.tokens) for i in part),
            rows=len(part),
            max_completion_length=self.config.max_new_tokens,
            seen=sum(len(lessons[i].rollout.tokens) for i in learnt),
        )
        sums: defaultdict[str, float] = defaultdict(float)
        for chunk in batches(self._rows(lessons, learnt), self.config.micro_batch_tokens):
            loss = self._loss(lessons, chunk, old, totals)
            self.accelerator.backward(loss.value)
            sums["loss"] += loss.value.item()
            for name, value in loss.metrics.items():
                sums[name] += value.item()
        norm = self.accelerator.clip_grad_norm_(self.weights.values(), self.config.max_grad_norm)
        sums["grad_norm"] = float(norm)
        sums["update/skipped"] = float(not torch.isfinite(norm))
        if torch.isfinite(norm):
            self.optimizer.step()
        self.optimizer.zero_grad()
        return dict(sums)

    def _loss(
        self,
        lessons: Sequence[Lesson],
        chunk: list[Row],
        old: dict[int, Sequence[float]],
        totals: Totals,
    ) -> Loss:
        """The loss of one micro-batch, and its share of the metrics."""
        logp_BT, mask_BT = self._logps(self.model, chunk)
        behaviour_BT = like(logp_BT, [lessons[row.place].rollout.behaviour_logps for row in chunk])
        known = [old[row.place] for row in chunk if row.place in old]
        batch = LossBatch(
            logp_BT=logp_BT,
            old_logp_BT=like(logp_BT, known) if known else logp_BT.detach(),
            advantage_B1=like(logp_BT[:, :1], [[lessons[row.place].advantage] for row in chunk]),
            mask_BT=mask_BT,
            totals=totals,
        )
        gap_BT = (logp_BT.detach() - behaviour_BT).abs()
        metrics = {"mismatch/mean": seen_mean(gap_BT, batch)}
        if self.reference is not None:
            with torch.no_grad(), self._without_adapter():
                reference_BT, _ = self._logps(self.reference, chunk)
            kl_BT = kl_estimate(logp_BT, reference_BT, self.config.kl_estimator)
            metrics["kl"] = seen_mean(kl_BT.detach(), batch)
            batch = batch.penalised(self.config.kl_coefficient * kl_BT)
        loss = self.loss(batch)
        return Loss(loss.value, loss.metrics | metrics)

    def _old_logps(self, lessons: Sequence[Lesson], *, single: bool) -> dict[int, Sequence[float]]:
        """Log-probs before the update by lesson; empty where the update's own will do."""
        learnt = [i for i, lesson in enumerate(lessons) if lesson.learn]
        if self.config.old_logps == "engine":
            return {i: lessons[i].rollout.behaviour_logps for i in learnt}
        if single:
            return {}
        old: dict[int, Sequence[float]] = {}
        with torch.no_grad():
            for chunk in batches(self._rows(lessons, learnt), self.config.micro_batch_tokens):
                logp_BT, _ = self._logps(self.model, chunk)
                for row, logp_T in zip(chunk, logp_BT.tolist(), strict=True):
                    old[row.place] = logp_T[: len(row.response)]
        return old

    def _rows(self, lessons: Sequence[Lesson], chosen: Sequence[int]) -> list[Row]:
        texts = dict.fromkeys(lessons[i].rollout.prompt.text for i in chosen)
        ids = {text: tuple(chat_ids(self.policy.tokenizer, text)) for text in texts}
        rollouts = [(i, lessons[i].rollout) for i in chosen]
        return [Row(ids[rollout.prompt.text], rollout.tokens, i) for i, rollout in rollouts]

    def _logps(self, model: Any, chunk: list[Row]) -> tuple[Tensor, Tensor]:
        pad = int(self.policy.tokenizer.pad_token_id)
        return response_logps(model, chunk, pad, self.config.temperature)

    def _without_adapter(self) -> Any:
        return self.model.disable_adapter() if self.config.lora_rank else nullcontext()

    def tensors(self) -> dict[str, Tensor]:
        """Trainable weights and the optimiser's moments, for a checkpoint."""
        moments = self.optimizer.state_dict()["state"]
        return {f"weight/{name}": p for name, p in self.weights.items()} | {
            f"moment/{index}/{key}": value
            for index, values in moments.items()
            for key, value in values.items()
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `tensors` returned."""
        moments: dict[int, dict[str, Tensor]] = {}
        with torch.no_grad():
            for key, value in tensors.items():
                kind, _, name = key.partition("/")
                if kind == "weight":
                    self.weights[name].copy_(value)
                else:
                    index, _, part = name.partition("/")
                    moments.setdefault(int(index), {})[part] = value
        state = self.optimizer.state_dict()
        self.optimizer.load_state_dict({**state, "state": moments})


def like(wanted_BT: Tensor, rows: Sequence[Sequence[float]]) -> Tensor:
    """Rows of numbers as a tensor of the wanted width, type and device, zeros at the end."""
    width = wanted_BT.shape[1]
    padded = [[*row, *[0.0] * (width - len(row))] for row in rows]
    return torch.tensor(padded, dtype=wanted_BT.dtype, device=wanted_BT.device)


def with_adapter(model: Any, config: "RLConfig") -> Any:
    """Freeze the model and add a LoRA adapter (arXiv:2106.09685) to each of its linear layers."""
    from peft import LoraConfig, get_peft_model

    adapter = LoraConfig(
        task_type="CAUSAL_LM",
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        target_modules="all-linear",
    )
    # PEFT draws the adapter's start from the global generator.
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        return get_peft_model(model, adapter)
