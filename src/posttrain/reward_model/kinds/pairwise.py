"""A policy that reads two responses at once and says which is better."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from posttrain.plugins import Plugin
from posttrain.reward_model.generative.folders import bring, policy_writer
from posttrain.reward_model.generative.templates import TEMPLATES, TemplateName, Tokens

if TYPE_CHECKING:
    from posttrain.reward_model.generative.judges import PairJudge, VerdictJudge
    from posttrain.reward_model.kinds import Made, Work


class Pairwise:
    """The policy as a judge of pairs that writes (GenRM of Writing-Zero, arXiv:2506.00103).

    `verdict: written`: two scores after principles and a critique, of at most `max_tokens`;
    `likelihood`: the chances of `1` and `2`, for a policy that would not write one. Train it before
    by `rl` on prompts of the task `judging` with the reward `verifier`.
    """

    def __init__(
        self,
        *,
        template: TemplateName = "boxed",
        verdict: Literal["written", "likelihood"] = "written",
        max_tokens: Tokens = 4096,
        engine: Plugin = Plugin(name="transformers"),
    ) -> None:
        self.template, self.verdict, self.max_tokens = TEMPLATES[template], verdict, max_tokens
        self.writer = policy_writer(engine)

    def make(self, work: "Work") -> "Made":
        """Copy the policy: nothing is learnt here."""
        return bring(work)

    def read(self, folder: Path) -> "PairJudge | VerdictJudge":
        """A judge over the policy of the folder."""
        from posttrain.reward_model.generative.judges import PairJudge, VerdictJudge

        writer = self.writer(folder)
        if self.verdict == "likelihood":
            return VerdictJudge(writer, self.template)
        return PairJudge(writer, self.template, self.max_tokens)
