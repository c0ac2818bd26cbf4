"""The options of the stage `rl`: its sizes, and one choice at each of the loop's twelve points."""

from typing import Annotated, Literal

from posttrain.config import Family, Field, Plugin, StageConfig


class RLConfig(StageConfig):
    """Options of reinforcement learning; the defaults are GRPO with a token mean and no KL term."""

    method: str = Field(
        "", description="a published bundle of these options, beneath whatever else is said"
    )
    steps: int = Field(200, ge=1, description="rounds of drawing, scoring and updating")
    max_rollouts: int = Field(
        0, ge=0, description="stop once so many completions were drawn; 0: steps decide"
    )
    max_seconds: float = Field(
        0.0, ge=0, description="stop once the steps took so long; 0: steps decide"
    )
    prompts_per_step: int = Field(128, ge=1, description="groups in an update")
    group_size: int = Field(8, ge=1, description="completions per prompt")
    max_new_tokens: int = Field(1024, ge=1, description="tokens of the longest completion")
    temperature: float = Field(1.0, gt=0, description="sampling temperature")
    top_p: float = Field(
        1.0, gt=0, le=1, description="nucleus kept when sampling; gradients are of such draws"
    )
    top_k: int = Field(0, ge=0, description="tokens kept when sampling; 0: all")
    engine: Annotated[Plugin, Family("posttrain.engines:ENGINES")] = Field(
        Plugin(name="transformers"), description="what draws the completions"
    )

    prompt_sampler: Annotated[Plugin, Family("posttrain.rl.samplers:PROMPT_SAMPLERS")] = Field(
        Plugin(name="uniform"), description="which prompts come next"
    )
    max_prompts: int = Field(0, ge=0, description="use so many of the prompts, by seed; 0: all")
    budget: Annotated[Plugin, Family("posttrain.rl.budgets:BUDGETS")] = Field(
        Plugin(name="fixed"), description="how many completions each prompt gets"
    )
    strategy: Annotated[Plugin, Family("posttrain.rl.strategies:ROLLOUT_STRATEGIES")] = Field(
        Plugin(name="plain"), description="how completions come about"
    )
    environment: Annotated[Plugin, Family("posttrain.rl.environments:ENVIRONMENTS")] = Field(
        Plugin(name="single_turn"), description="what answers in the middle of a completion"
    )
    rewards: list[Annotated[Plugin, Family("posttrain.rewards:REWARDS")]] = Field(
        [Plugin(name="verifier")], min_length=1, description="the parts of the reward"
    )
    reward_weights: dict[str, float] = Field({}, description="part -> weight; 1 where not named")
    reward_gate: Annotated[Plugin, Family("posttrain.rewards.gates:REWARD_GATES")] = Field(
        Plugin(name="weighted_sum"), description="how the parts make one reward"
    )
    reward_seconds: float = Field(
        300.0, gt=0, description="a part that takes longer on a batch counts as failed"
    )
    advantage: Annotated[Plugin, Family("posttrain.rl.advantages:ADVANTAGES")] = Field(
        Plugin(name="grpo"), description="advantage estimator"
    )
    critic: Annotated[Plugin, Family("posttrain.rl.critics:CRITICS")] = Field(
        Plugin(name="none"), description="what predicts returns for the estimator"
    )
    transforms: list[Annotated[Plugin, Family("posttrain.rl.transforms:ADVANTAGE_TRANSFORMS")]] = (
        Field([], description="changes to the advantages, in this order")
    )
    replay: Annotated[Plugin, Family("posttrain.rl.replays:REPLAYS")] = Field(
        Plugin(name="fresh"), description="what an update learns from, besides what is fresh"
    )
    loss: Annotated[Plugin, Family("posttrain.rl.losses:POLICY_LOSSES")] = Field(
        Plugin(name="clip"), description="policy loss"
    )
    controller: Annotated[Plugin, Family("posttrain.rl.controllers:CONTROLLERS")] = Field(
        Plugin(name="synchronous"), description="when completions are drawn, and how old they get"
    )
    schedule: Annotated[Plugin, Family("posttrain.rl.schedules:SCHEDULES")] = Field(
        Plugin(name="constant"), description="share of the learning rate by step"
    )
    turns: Annotated[Plugin, Family("posttrain.rl.schedules:TURNS")] = Field(
        Plugin(name="fixed"), description="pieces a completion may have, by step"
    )
    hooks: list[Annotated[Plugin, Family("posttrain.rl.hooks:OPTIMIZER_HOOKS")]] = Field(
        [], description="factors of the learning rate that an update decides"
    )
    precision: Annotated[Plugin, Family("posttrain.rl.precisions:PRECISIONS")] = Field(
        Plugin(name="native"), description="number formats of drawing and of training"
    )

    max_draws: int = Field(
        1, ge=1, description="above 1: groups without signal are replaced, so often at most (DAPO)"
    )
    allow_failed_judge: bool = Field(
        False, description="use a judge that did not pass its panel; the report says so"
    )
    mask_truncated: bool = Field(False, description="do not learn from unfinished completions")
    kl_coefficient: float = Field(0.0, ge=0, description="weight of the KL to the start; 0: none")
    kl_estimator: Literal["k1", "k2", "k3"] = Field("k3", description="estimate of that KL")
    entropy_bonus: float = Field(0.0, ge=0, description="weight of the entropy, in nats per token")
    old_logps: Literal["engine", "recompute"] = Field(
        "engine", description="denominator of the ratio: as drawn, or by the trainer's own pass"
    )
    max_mismatch: float = Field(
        0.0,
        ge=0,
        description="stop when drawn and trained log-probs differ by more on average; 0: never",
    )
    learning_rate: float = Field(1e-6, gt=0, description="peak learning rate of AdamW")
    weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay of AdamW")
    max_grad_norm: float = Field(1.0, gt=0, description="gradients are clipped to this norm")
    ppo_epochs: int = Field(1, ge=1, description="passes over the rollouts of a step")
    minibatches: int = Field(1, ge=1, description="updates in such a pass")
    micro_batch_tokens: int = Field(
        0, ge=0, description="tokens in one forward pass, padded; 0: what suits the device"
    )
    gradient_checkpointing: bool = Field(False, description="trade time for memory")
    packing: bool = Field(
        False, description="one row without pads for all that a forward pass holds"
    )
    sharding: Literal["none", "fsdp2"] = Field(
        "none", description="what torchrun's processes share out besides the rows: fsdp2, weights"
    )
    lora_rank: int = Field(0, ge=0, description="rank of a LoRA adapter; 0 trains every weight")
    lora_alpha: float = Field(32.0, gt=0, description="LoRA scale is alpha / rank")
    checkpoint_every: int = Field(20, ge=1, description="steps between checkpoints")
