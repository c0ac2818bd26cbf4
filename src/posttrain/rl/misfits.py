"""Choices that do not go together: each fault names the two options and why."""

from collections.abc import Iterator

from posttrain.errors import Fault
from posttrain.rl.config import RLConfig

CRITICAL = {"gae"}
"""Estimators that compare with a critic; all others compare within a group or a batch."""


def misfits(config: RLConfig, *, has_demonstrations: bool) -> list[Fault]:
    """Every misfit among the options of `rl`."""
    return [
        *_estimator(config),
        *_controller(config),
        *_strategy(config, has_demonstrations),
        *_rewards(config),
        *_formats(config),
        *_sharding(config),
    ]


def _estimator(config: RLConfig) -> Iterator[Fault]:
    estimator, critic = config.advantage.name, config.critic.name
    if estimator in CRITICAL and critic == "none":
        yield Fault(
            f"`advantage: {estimator}` with `critic: none`",
            "rl.critic",
            "the estimator compares each token's return with what a critic expected",
            "name a critic, or an estimator that compares within the group",
        )
    if estimator not in CRITICAL and critic != "none":
        yield Fault(
            f"`critic: {critic}` with `advantage: {estimator}`",
            "rl.critic",
            "the estimator would never ask the critic, which would be trained for nothing",
            f"leave the critic out, or take one of {', '.join(sorted(CRITICAL))}",
        )
    if "asyppo_masks" in [t.name for t in config.transforms] and critic != "mini_ensemble":
        yield Fault(
            f"`transforms: asyppo_masks` with `critic: {critic}`",
            "rl.transforms",
            "the masks rank tokens by how much several critics disagree",
            "take `critic: mini_ensemble`",
        )
    beyond = estimator in CRITICAL or config.advantage.options.get("baseline") == "none"
    if config.group_size == 1 and not beyond and estimator != "reinforce_pp":
        yield Fault(
            f"`group_size: 1` with `advantage: {estimator}`",
            "rl.group_size",
            "a group of one is its own baseline: every advantage would be 0",
            "draw at least 2 completions a prompt, or take another estimator",
        )
    if config.loss.name in ("decoupled_ppo", "ipa") and config.old_logps != "recompute":
        yield Fault(
            f"`loss: {config.loss.name}` with `old_logps: {config.old_logps}`",
            "rl.old_logps",
            "the loss tells the policy before the update from the one that drew the tokens",
            "set `old_logps: recompute`",
        )
    forgets = config.loss.name not in ("decoupled_ppo", "sequence_is")
    if config.replay.name == "rr_fifo" and config.old_logps == "recompute" and forgets:
        yield Fault(
            f"`replay: rr_fifo` with `old_logps: recompute` and `loss: {config.loss.name}`",
            "rl.old_logps",
            "replayed completions are old, and their ratio to the policy that drew them would be"
            " lost",
            "set `old_logps: engine`, or take `loss: decoupled_ppo`",
        )


def _controller(config: RLConfig) -> Iterator[Fault]:
    if config.controller.name != "partial_rollout":
        return
    for key, wanted in (("budget", "fixed"), ("strategy", "plain"), ("environment", "single_turn")):
        found = getattr(config, key).name
        if found != wanted:
            yield Fault(
                f"`controller: partial_rollout` with `{key}: {found}`",
                f"rl.{key}",
                "a completion that stops in the middle must be one that only the policy writes,"
                " and of a number that is known beforehand",
                f"take `{key}: {wanted}`, or another controller",
            )


def _strategy(config: RLConfig, has_demonstrations: bool) -> Iterator[Fault]:
    if config.strategy.name == "external" and not has_demonstrations:
        yield Fault(
            "no demonstrations",
            "rl.strategy",
            "`external` puts worked solutions among the rollouts",
            "give `--demonstrations` with solutions of the prompts, or take another strategy",
        )
    whole = config.strategy.name == "ce_rm" or config.advantage.name == "brpo"
    if whole and config.budget.name != "fixed":
        choice = "strategy: ce_rm" if config.strategy.name == "ce_rm" else "advantage: brpo"
        yield Fault(
            f"`{choice}` with `budget: {config.budget.name}`",
            "rl.budget",
            "its responses mean something only within a group that is drawn and scored at once",
            "take `budget: fixed`",
        )
    taken = int(config.strategy.options.get("external_per_group", 1))
    if config.strategy.name == "external" and taken >= config.group_size:
        yield Fault(
            f"`strategy: external` with `external_per_group: {taken}`"
            f" and `group_size: {config.group_size}`",
            "rl.strategy.external_per_group",
            "no response of the policy's own would be left in a group",
            "let the group be larger",
        )


def _rewards(config: RLConfig) -> Iterator[Fault]:
    options, parts = config.reward_gate.options, [part.name for part in config.rewards]
    if ("ce_rm" in parts) != (config.strategy.name == "ce_rm"):
        yield Fault(
            f"`rewards: [{', '.join(parts)}]` with `strategy: {config.strategy.name}`",
            "rl.rewards",
            "the reward `ce_rm` compares evaluations that only the strategy of that name asks for",
            "take both, or neither: `method: ce_rm` has them",
        )
    if config.reward_gate.name != "gra":
        return
    for name in (options.get("outcome", "verifier"), *options.get("priorities", ())):
        if name not in parts:
            yield Fault(
                f"`reward_gate: gra` over `{name}`, which is not among the rewards",
                "rl.reward_gate",
                f"the reward has the parts {', '.join(parts)}",
                f"add `{name}` to `rewards`, or gate by a part that is there",
            )


def _formats(config: RLConfig) -> Iterator[Fault]:
    if config.engine.name == "vllm_server":
        yield Fault(
            "`engine: vllm_server` in `rl`",
            "rl.engine",
            "a server keeps the weights it was started with, and the first update changes ours",
            "take `engine: vllm`, which lives in this process; the server serves best_of_n,"
            " benchmark and reject",
        )
    options = config.loss.options
    if options.get("uniform") == "inv_vocab" and not options.get("vocabulary"):
        yield Fault(
            f"`loss: {config.loss.name}` with `uniform: inv_vocab` and no `vocabulary`",
            "rl.loss.vocabulary",
            "a uniform writer's chance of a token is 1 / the size of the vocabulary",
            "say how many tokens the policy has, or take `uniform: one`",
        )
    if config.precision.name != "native" and config.engine.name != "transformers":
        yield Fault(
            f"`precision: {config.precision.name}` with `engine: {config.engine.name}`",
            "rl.precision",
            "the linear layers of this process are rounded, but that engine has its own",
            "take `engine: transformers`, or the native precision",
        )


def _sharding(config: RLConfig) -> Iterator[Fault]:
    if config.sharding == "none":
        return
    for key, found, neutral in (
        ("lora_rank", config.lora_rank, 0),
        ("precision", config.precision.name, "native"),
    ):
        if found != neutral:
            yield Fault(
                f"`sharding: {config.sharding}` with `{key}: {found}`",
                "rl.sharding",
                "shares are of plain weights that are all trained",
                f"set `{key}: {neutral}`, or `sharding: none`",
            )
