"""policy, prompts, judge (optional), demonstrations (optional) -> trained policy

Reinforcement learning on rewards that can be checked. A step draws prompts, plans and rolls out
their responses, scores and gates them, estimates advantages and transforms them, composes batches
and updates the policy. Groups whose advantages are all zero cost no backward pass.
Left out on purpose: what any one method needs. Each is a choice at the twelve points of
`posttrain.rl.config`, and a method that needs several is a recipe.
"""

import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

from posttrain.artifacts import JUDGE, POLICY, In, Out
from posttrain.config import Report
from posttrain.journal import Journal
from posttrain.records import Demonstration, Prompt
from posttrain.reward_model.panel import PanelWord, panel_word
from posttrain.rl.config import RLConfig


class RLReport(Report):
    """Rewards are means over the first and the last five steps; counts are of completions.

    generated = used + dropped + pending; `reused` counts replayed ones and other writers'.
    `judge_panel` is the verdict on the judge that scored them, `none` without one; `judge_costs`
    counts what a judge that writes was asked, and the share of it that was no score.
    """

    steps: int
    prompts_too_long: int
    start_reward: float
    end_reward: float
    generated: int
    used: int
    reused: int
    pending: int
    dropped: dict[str, int]
    kept_groups: float
    tokens: int
    mean_length: float
    truncated: float
    judge_panel: PanelWord = "none"
    judge_costs: dict[str, float] = {}


def run(
    config: RLConfig,
    *,
    policy: Annotated[Path, In(POLICY)],
    prompts: Annotated[Path, In(Prompt)],
    judge: Annotated[Path | None, In(JUDGE)] = None,
    demonstrations: Annotated[Path | None, In(Demonstration)] = None,
    trained: Annotated[Path, Out(POLICY)],
    journal: Journal,
) -> RLReport:
    """Train the policy on the prompts and write it with any adapter merged."""
    from posttrain.policies import save_policy
    from posttrain.reward_model.costs import Meter
    from posttrain.rl.experience import estimated, lessons
    from posttrain.rl.parts import Loop, build_parts
    from posttrain.rl.scored import Scored

    has = {"has_judge": judge is not None, "has_demonstrations": demonstrations is not None}
    parts = build_parts(config, **has)
    loop = Loop.of(config, parts, policy, prompts, judge, demonstrations, journal)
    learner, critic, explorer, ledger = loop.learner, loop.critic, loop.explorer, loop.ledger
    meter = Meter(explorer.judge)

    with closing(loop):
        for step in range(loop.resume(journal), config.steps):
            if ledger.spent(config.max_rollouts, config.max_seconds):
                break
            began = time.perf_counter()
            before = explorer.pool.stats.copy()
            drawn = parts.controller.collect(explorer, step, config.prompts_per_step)
            rolled_out = time.perf_counter()
            scored = Scored(drawn.counted, before, critic.assess(drawn.counted), learner)
            estimate = estimated(scored, parts.advantage, parts.transforms)
            fresh = lessons(
                scored,
                estimate,
                drawn.dropped,
                keep_silent=config.kl_coefficient > 0,
                mask_truncated=config.mask_truncated,
            )
            rate = config.learning_rate * parts.schedule(step, config.steps)
            batches = parts.replay.compose(fresh, step)
            metrics = learner.learn(batches, rate)
            seconds = {
                "time/rollout": rolled_out - began,
                "time/update": time.perf_counter() - rolled_out,
            }
            metrics |= estimate.metrics | critic.metrics() | parts.replay.metrics()
            metrics |= explorer.pool.metrics() | seconds | meter.read() | {"lr": rate}
            ledger.enter(step, drawn, [lesson for batch in batches for lesson in batch], metrics)
            if (step + 1) % config.checkpoint_every == 0 or journal.stopping:
                loop.keep(journal, step + 1)
                journal.pause()

    save_policy(learner.policy.model, learner.policy.tokenizer, trained)
    return RLReport(
        **ledger.report(),
        pending=parts.controller.pending(),
        judge_panel=panel_word(judge if "judge" in parts.rewards else None),
    )
