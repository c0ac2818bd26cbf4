"""The parts of the loop: built from the options before anything is read, then put to work.

`build_parts` fails in a millisecond on a typo or on options that do not go together; `Loop.of`
loads models.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

from torch import Tensor

from posttrain.artifacts import read_rows
from posttrain.engines import ENGINES, Engine
from posttrain.engines.lazy import LazyEngine
from posttrain.errors import ConfigError, DataError, Fault
from posttrain.journal import Journal
from posttrain.plugins import build
from posttrain.policies import batch_ids, chat_texts, response_ids
from posttrain.records import Demonstration, Prompt
from posttrain.reward_model.generative.pairs import case_of
from posttrain.reward_model.loading import load_judge
from posttrain.rewards import REWARDS, Reward, check_parts
from posttrain.rewards.gates import REWARD_GATES, Gate
from posttrain.rl.advantages import ADVANTAGES, Advantage
from posttrain.rl.budgets import BUDGETS, Budget
from posttrain.rl.ce_rm import longest_turn
from posttrain.rl.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from posttrain.rl.config import RLConfig
from posttrain.rl.controllers import CONTROLLERS, Controller
from posttrain.rl.critics import CRITICS, Critic
from posttrain.rl.embeddings import start_embeddings
from posttrain.rl.environments import ENVIRONMENTS, Environment
from posttrain.rl.explorer import Explorer, Origin
from posttrain.rl.hooks import OPTIMIZER_HOOKS, Hook
from posttrain.rl.learner import Learner
from posttrain.rl.ledger import Ledger
from posttrain.rl.losses import POLICY_LOSSES, PolicyLoss
from posttrain.rl.misfits import misfits
from posttrain.rl.pool import Pool
from posttrain.rl.precisions import PRECISIONS, Precision
from posttrain.rl.replays import REPLAYS, Replay
from posttrain.rl.rollout import Rollout
from posttrain.rl.samplers import PROMPT_SAMPLERS
from posttrain.rl.schedules import SCHEDULES, TURNS, Schedule, Turns
from posttrain.rl.strategies import ROLLOUT_STRATEGIES, Strategy
from posttrain.rl.transforms import ADVANTAGE_TRANSFORMS, Transform


class Parts(NamedTuple):
    """One member of each family, its options bound."""

    engine: Callable[[Any], Engine]
    sample: Callable[..., list[Prompt]]
    budget: Budget
    strategy: Strategy
    environment: Environment
    rewards: dict[str, Reward]
    gate: Gate
    advantage: Advantage
    critic: Callable[[Path, int], Critic]
    transforms: list[Transform]
    replay: Replay
    loss: PolicyLoss
    controller: Controller
    schedule: Schedule
    turns: Turns
    hooks: list[Hook]
    precision: Precision


def build_parts(config: RLConfig, *, has_judge: bool, has_demonstrations: bool) -> Parts:
    """Raise ConfigError on an unknown member or option, and on choices that do not go together."""
    parts = Parts(
        engine=build(ENGINES, config.engine, "rl.engine"),
        sample=build(PROMPT_SAMPLERS, config.prompt_sampler, "rl.prompt_sampler"),
        budget=build(BUDGETS, config.budget, "rl.budget"),
        strategy=build(ROLLOUT_STRATEGIES, config.strategy, "rl.strategy"),
        environment=build(ENVIRONMENTS, config.environment, "rl.environment")(),
        rewards={part.name: build(REWARDS, part, "rl.rewards") for part in config.rewards},
        gate=build(REWARD_GATES, config.reward_gate, "rl.reward_gate"),
        advantage=build(ADVANTAGES, config.advantage, "rl.advantage"),
        critic=build(CRITICS, config.critic, "rl.critic"),
        transforms=[build(ADVANTAGE_TRANSFORMS, t, "rl.transforms") for t in config.transforms],
        replay=build(REPLAYS, config.replay, "rl.replay")(),
        loss=build(POLICY_LOSSES, config.loss, "rl.loss"),
        controller=build(CONTROLLERS, config.controller, "rl.controller")(),
        schedule=build(SCHEDULES, config.schedule, "rl.schedule"),
        turns=build(TURNS, config.turns, "rl.turns"),
        hooks=[build(OPTIMIZER_HOOKS, hook, "rl.hooks") for hook in config.hooks],
        precision=build(PRECISIONS, config.precision, "rl.precision"),
    )
    names = [part.name for part in config.rewards]
    check_parts(names, config.reward_weights, has_judge=has_judge, where="rl")
    faults = misfits(config, has_demonstrations=has_demonstrations)
    if faults:
        raise ConfigError(*faults)
    return parts


class Loop(NamedTuple):
    """What a step works with, and what a checkpoint holds."""

    parts: Parts
    learner: Learner
    critic: Critic
    explorer: Explorer
    ledger: Ledger

    @classmethod
    def of(
        cls,
        config: RLConfig,
        parts: Parts,
        policy: Path,
        prompts: Path,
        judge: Path | None,
        demonstrations: Path | None,
        journal: Journal,
    ) -> Self:
        """Load what the paths hold."""
        given = read_prompts(prompts, config)
        # A judge that nobody asks need not have passed its panel.
        asked = judge if "judge" in parts.rewards else None
        scorer = load_judge(asked, allow_failed=config.allow_failed_judge) if asked else None
        shown = demonstrations if config.strategy.name == "external" else None
        learner = Learner(config, policy, parts.loss, parts.hooks, parts.precision)
        fitting = within_context(given, learner, config, prompts)
        pool = Pool(fitting, config.seed, start_embeddings(policy))
        explorer = Explorer(
            config=config,
            engine=LazyEngine(partial(parts.engine, learner.policy)),
            tokenizer=learner.policy.tokenizer,
            pool=pool,
            sample=parts.sample,
            budget=parts.budget,
            strategy=parts.strategy,
            environment=parts.environment,
            rewards=parts.rewards,
            gate=parts.gate,
            judge=scorer,
            demonstrations=worked(
                shown, pool.prompts, learner.policy.tokenizer, config.max_new_tokens
            ),
            turns=parts.turns,
            precision=partial(parts.precision, learner.policy.model, "rollout"),
            origin=Origin(policy, learner.whole, journal.scratch),
        )
        critic = parts.critic(policy, config.seed)
        ledger = Ledger(journal, config.steps, too_long=len(given) - len(fitting))
        return cls(parts, learner, critic, explorer, ledger)

    def resume(self, journal: Journal) -> int:
        """Continue from the newest sound checkpoint, if there is one; how many steps are done."""
        found = load_checkpoint(journal.scratch)
        if found is None:
            return 0
        self.learner.restore(dict(under("learner/", found.tensors)))
        self.critic.restore(dict(under("critic/", found.tensors)))
        for name, holder in self._holders().items():
            holder.restore(found.state[name])
        return found.step

    def keep(self, journal: Journal, done: int) -> None:
        """Write a checkpoint. Random numbers need none: each draw's seed comes from its step."""
        state = {name: holder.state() for name, holder in self._holders().items()}
        tensors = {f"learner/{name}": t for name, t in self.learner.tensors().items()}
        tensors |= {f"critic/{name}": t for name, t in self.critic.tensors().items()}
        journal.sync()
        save_checkpoint(journal.scratch, Checkpoint(done, tensors, state))

    def close(self) -> None:
        """End what runs beside the loop; it cannot take another step."""
        self.parts.controller.close()

    def _holders(self) -> dict[str, Any]:
        return {
            "pool": self.explorer.pool,
            "ledger": self.ledger,
            "replay": self.parts.replay,
            "controller": self.parts.controller,
        }


def under(prefix: str, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """The tensors whose names begin so, without it."""
    for name, tensor in tensors.items():
        if name.startswith(prefix):
            yield name.removeprefix(prefix), tensor


def read_prompts(folder: Path, config: RLConfig) -> list[Prompt]:
    """The prompts to learn from; none, or a task without a verifier, is a DataError."""
    from posttrain.rewards.verifiers import verifier_of

    prompts = list(read_rows(folder, Prompt))
    if not prompts:
        raise DataError(
            Fault("no prompts", str(folder), "it holds no rows", "curate with fewer filters")
        )
    for task in sorted({prompt.task for prompt in prompts}):
        verifier_of(task)
    if config.strategy.name == "ce_rm" and not any(map(case_of, prompts)):
        why, mend = "`strategy: ce_rm` judges pairs", "make them by the raw source `judging`"
        raise DataError(Fault("no pairs to judge", str(folder), why, mend))
    if not config.max_prompts:
        return prompts
    return Pool(prompts, config.seed).first(config.max_prompts)


def within_context(
    prompts: Sequence[Prompt], learner: Learner, config: RLConfig, folder: Path
) -> list[Prompt]:
    """The prompts that leave room for a completion; none at all is a DataError."""
    room = int(learner.model.config.max_position_embeddings) - config.max_new_tokens
    texts = [prompt.text for prompt in prompts]
    if config.strategy.name == "ce_rm":
        # What the first turn wrote stands in the second one's question.
        room -= config.max_new_tokens
        texts = [longest_turn(prompt) for prompt in prompts]
    tokenizer = learner.policy.tokenizer
    ids = batch_ids(tokenizer, chat_texts(tokenizer, texts))
    fitting = [prompt for prompt, own in zip(prompts, ids, strict=True) if len(own) <= room]
    if not fitting:
        raise DataError(
            Fault(
                "no prompt fits the model's context",
                str(folder),
                f"the shortest has {min(map(len, ids))} tokens, and max_new_tokens"
                f" {config.max_new_tokens} leaves room for {max(0, room)}",
                "lower rl.max_new_tokens, or take a policy with a longer context",
            )
        )
    return fitting


def worked(
    folder: Path | None, prompts: Sequence[Prompt], tokenizer: Any, longest: int
) -> dict[str, Rollout]:
    """The demonstrations of these prompts, by prompt, as responses of another writer; those of more
    than `longest` tokens are left out."""
    if folder is None:
        return {}
    own = {prompt.id: prompt for prompt in prompts}
    found = {}
    for row in read_rows(folder, Demonstration):
        if row.prompt_id in own and row.prompt_id not in found:
            ids = tuple(response_ids(tokenizer, row.response))
            if len(ids) > longest:
                continue
            blank = (0.0,) * len(ids)
            prompt = own[row.prompt_id]
            found[row.prompt_id] = Rollout(
                prompt, row.response, ids, blank, truncated=False, source="external"
            )
    return found
