"""Bradley-Terry with margins that the model makes itself, and pairs that it labels itself."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

if TYPE_CHECKING:
    from posttrain.reward_model.judge import RewardModelJudge
    from posttrain.reward_model.kinds import Made, Work

Share = Annotated[float, Field(gt=0, lt=1)]


class AdaptiveMargin:
    """-log sigmoid(chosen - rejected - m), m by the model's own likelihoods (arXiv:2505.23923).

    With lbar the mean log-prob of a response's tokens under the model as it learns, m is
    `strength` * (lbar(chosen) - lbar(rejected)), clamped to [0, `largest`], and no gradient flows
    through it; `variant: ref` takes lbar less that of the policy it began as. Self-evolution, up to
    `rounds` times: pairs that the policy draws for `draws` of the prompts get the winner that the
    judge sees, where its gap is above the `quantile` of all; it is trained anew on both. It stops
    when accuracy on `check_share` of the prompts, on which nothing trains, no longer rises. The
    paper does not state the formula or the constants: all of this is assumed.
    """

    def __init__(
        self,
        *,
        variant: Literal["free", "ref"] = "free",
        strength: Annotated[float, Field(ge=0)] = 1.0,
        largest: Annotated[float, Field(gt=0)] = 2.0,
        rounds: Annotated[int, Field(ge=0)] = 0,
        quantile: Annotated[float, Field(ge=0, lt=1)] = 0.7,
        draws: Annotated[int, Field(ge=1)] = 256,
        max_new_tokens: Annotated[int, Field(ge=1)] = 256,
        check_share: Share = 0.1,
    ) -> None:
        self.variant = variant
        self.strength = strength
        self.largest = largest
        self.rounds = rounds
        self.quantile = quantile
        self.draws = draws
        self.max_new_tokens = max_new_tokens
        self.check_share = check_share

    def make(self, work: "Work") -> "Made":
        """Train, evolve, and write the best."""
        from posttrain.policies import save_policy
        from posttrain.reward_model.evolving import evolved
        from posttrain.reward_model.judge import check_pad_token

        check_pad_token(work.tokenizer, work.policy)
        made = evolved(self, work)
        save_policy(made.trained, work.tokenizer, work.folder)
        return made

    def read(self, folder: Path) -> "RewardModelJudge":
        """A model like that of `bradley_terry`."""
        from posttrain.reward_model.judge import RewardModelJudge, read_scoring_model

        return RewardModelJudge(*read_scoring_model(folder))
