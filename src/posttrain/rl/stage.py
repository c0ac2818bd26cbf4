"""policy, prompts, judge (optional) -> trained policy

Reinforcement learning on rewards that can be checked: draw prompts, roll out, score, estimate
advantages, update, log. Groups whose advantages are all zero cost no backward pass.
Left out on purpose: a critic, several machines, tools and asynchronous rollouts.
"""

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from posttrain.artifacts import JUDGE, POLICY, In, Out, read_rows
from posttrain.config import Family, Field, Plugin, Report, StageConfig
from posttrain.errors import DataError, Fault
from posttrain.journal import Journal
from posttrain.plugins import build
from posttrain.records import Prompt

if TYPE_CHECKING:
    from posttrain.rewards import Judge
    from posttrain.rl.learner import Learner
    from posttrain.rl.ledger import Ledger
    from posttrain.rl.samplers import Pool


class RLConfig(StageConfig):
    """Options of reinforcement learning; the defaults are GRPO with a token mean and no KL term."""

    steps: int = Field(200, ge=1, description="rounds of drawing, scoring and updating")
    prompts_per_step: int = Field(128, ge=1, description="groups in an update")
    group_size: int = Field(8, ge=1, description="completions per prompt")
    max_new_tokens: int = Field(1024, ge=1, description="tokens of the longest completion")
    temperature: float = Field(1.0, gt=0, description="sampling temperature")
    top_p: float = Field(1.0, gt=0, le=1, description="nucleus kept when sampling")
    engine: Annotated[Plugin, Family("posttrain.engines:ENGINES")] = Field(
        Plugin(name="transformers"), description="what draws the completions"
    )
    prompt_sampler: Annotated[Plugin, Family("posttrain.rl.samplers:PROMPT_SAMPLERS")] = Field(
        Plugin(name="uniform"), description="which prompts come next"
    )
    rewards: list[Annotated[Plugin, Family("posttrain.rewards:REWARDS")]] = Field(
        [Plugin(name="verifier")], min_length=1, description="the parts of the reward"
    )
    reward_weights: dict[str, float] = Field({}, description="part -> weight; 1 where not named")
    advantage: Annotated[Plugin, Family("posttrain.rl.advantages:ADVANTAGES")] = Field(
        Plugin(name="grpo"), description="advantage estimator"
    )
    loss: Annotated[Plugin, Family("posttrain.rl.losses:POLICY_LOSSES")] = Field(
        Plugin(name="clip"), description="policy loss"
    )
    schedule: Annotated[Plugin, Family("posttrain.rl.schedules:SCHEDULES")] = Field(
        Plugin(name="constant"), description="share of the learning rate by step"
    )
    max_draws: int = Field(
        1, ge=1, description="above 1: groups without signal are replaced, so often at most (DAPO)"
    )
    mask_truncated: bool = Field(False, description="do not learn from unfinished completions")
    kl_coefficient: float = Field(0.0, ge=0, description="weight of the KL to the start; 0: none")
    kl_estimator: Literal["k1", "k2", "k3"] = Field("k3", description="estimate of that KL")
    old_logps: Literal["engine", "recompute"] = Field(
        "engine", description="denominator of the ratio: as drawn, or by the trainer's own pass"
    )
    learning_rate: float = Field(1e-6, gt=0, description="peak learning rate of AdamW")
    weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay of AdamW")
    max_grad_norm: float = Field(1.0, gt=0, description="gradients are clipped to this norm")
    ppo_epochs: int = Field(1, ge=1, description="passes over the rollouts of a step")
    minibatches: int = Field(1, ge=1, description="updates in such a pass")
    micro_batch_tokens: int = Field(8192, ge=1, description="tokens in one forward pass, padded")
    lora_rank: int = Field(0, ge=0, description="rank of a LoRA adapter; 0 trains every weight")
    lora_alpha: float = Field(32.0, gt=0, description="LoRA scale is alpha / rank")
    checkpoint_every: int = Field(20, ge=1, description="steps between checkpoints")


class RLReport(Report):
    """Rewards are means over the first and the last five steps; counts are of completions."""

    steps: int
    start_reward: float
    end_reward: float
    generated: int
    used: int
    dropped: dict[str, int]
    kept_groups: float
    tokens: int
    mean_length: float
    truncated: float


def run(
    config: RLConfig,
    *,
    policy: Annotated[Path, In(POLICY)],
    prompts: Annotated[Path, In(Prompt)],
    judge: Annotated[Path | None, In(JUDGE)] = None,
    trained: Annotated[Path, Out(POLICY)],
    journal: Journal,
) -> RLReport:
    """Train the policy on the prompts and write it with any adapter merged."""
    from posttrain.engines import ENGINES
    from posttrain.policies import save_policy
    from posttrain.rewards import REWARDS, check_parts
    from posttrain.rl.advantages import ADVANTAGES
    from posttrain.rl.experience import collect, lessons
    from posttrain.rl.explorer import Explorer
    from posttrain.rl.learner import Learner
    from posttrain.rl.ledger import Ledger
    from posttrain.rl.losses import POLICY_LOSSES
    from posttrain.rl.samplers import PROMPT_SAMPLERS, Pool
    from posttrain.rl.schedules import SCHEDULES

    sample = build(PROMPT_SAMPLERS, config.prompt_sampler, "rl.prompt_sampler")
    rewards = {part.name: build(REWARDS, part, "rl.rewards") for part in config.rewards}
    advantage = build(ADVANTAGES, config.advantage, "rl.advantage")
    loss = build(POLICY_LOSSES, config.loss, "rl.loss")
    schedule = build(SCHEDULES, config.schedule, "rl.schedule")
    make_engine = build(ENGINES, config.engine, "rl.engine")
    parts = [part.name for part in config.rewards]
    check_parts(parts, config.reward_weights, has_judge=judge is not None, where="rl")
    pool = Pool(read_prompts(prompts), config.seed)
    learner = Learner(config, policy, loss)
    engine, scorer = make_engine(learner.policy), load_scorer(judge)
    explorer = Explorer(config, engine, pool, sample, rewards, scorer)
    ledger = Ledger(journal, config.steps)

    for step in range(resume(journal, learner, pool, ledger), config.steps):
        began = time.perf_counter()
        drawn = collect(partial(explorer.draw, step), config.prompts_per_step, config.max_draws)
        learnt = lessons(
            drawn,
            advantage,
            keep_silent=config.kl_coefficient > 0,
            mask_truncated=config.mask_truncated,
        )
        rolled_out = time.perf_counter()
        rate = config.learning_rate * schedule(step, config.steps)
        metrics = learner.update(learnt, rate)
        seconds = {
            "time/rollout": rolled_out - began,
            "time/update": time.perf_counter() - rolled_out,
        }
        ledger.enter(step, drawn, learnt, metrics | seconds | {"lr": rate})
        if (step + 1) % config.checkpoint_every == 0:
            keep(journal, step + 1, learner, pool, ledger)

    save_policy(learner.policy.model, learner.policy.tokenizer, trained)
    return RLReport(**ledger.report())


def resume(journal: Journal, learner: "Learner", pool: "Pool", ledger: "Ledger") -> int:
    """Continue from the newest sound checkpoint, if there is one; how many steps are done."""
    from posttrain.rl.checkpoint import load_checkpoint

    found = load_checkpoint(journal.scratch)
    if found is None:
        return 0
    learner.restore(found.tensors)
    pool.restore(found.state["pool"])
    ledger.restore(found.state["ledger"])
    return found.step


def keep(journal: Journal, done: int, learner: "Learner", pool: "Pool", ledger: "Ledger") -> None:
    """Write a checkpoint. Random numbers need none: each draw's seed comes from its step."""
    from posttrain.rl.checkpoint import Checkpoint, save_checkpoint

    state = {"pool": pool.state(), "ledger": ledger.state()}
    save_checkpoint(journal.scratch, Checkpoint(done, learner.tensors(), state))


def read_prompts(folder: Path) -> list[Prompt]:
    """All prompts; none, or a task without a verifier, is a DataError."""
    from posttrain.rewards.verifiers import verifier_of

    prompts = list(read_rows(folder, Prompt))
    if not prompts:
        raise DataError(
            Fault("no prompts", str(folder), "it holds no rows", "curate with fewer filters")
        )
    for task in sorted({prompt.task for prompt in prompts}):
        verifier_of(task)
    return prompts


def load_scorer(judge: Path | None) -> "Judge | None":
    """The judge, which must have passed its panel, or None."""
    if judge is None:
        return None
    from posttrain.reward_model.judge import load_judge

    return load_judge(judge)
