"""A policy that writes criteria for a query, and scores each response under them."""

from pathlib import Path
from typing import TYPE_CHECKING

from posttrain.plugins import Plugin
from posttrain.reward_model.generative.folders import bring, policy_writer
from posttrain.reward_model.generative.templates import TEMPLATES, TemplateName, Tokens

if TYPE_CHECKING:
    from posttrain.reward_model.generative.judges import CriteriaJudge
    from posttrain.reward_model.kinds import Made, Work


class CeRm:
    """The policy as a pointwise judge by criteria from the query alone (CE-RM, arXiv:2601.20327).

    Greedy, with criteria of at most `criteria_tokens` and evaluations of `max_tokens`. Train it
    before: `method: ce_rm` of `rl`, on prompts of the task `judging` with the same `template`.
    """

    def __init__(
        self,
        *,
        template: TemplateName = "boxed",
        criteria_tokens: Tokens = 4096,
        max_tokens: Tokens = 8192,
        engine: Plugin = Plugin(name="transformers"),
    ) -> None:
        self.template = TEMPLATES[template]
        self.criteria_tokens, self.max_tokens = criteria_tokens, max_tokens
        self.writer = policy_writer(engine)

    def make(self, work: "Work") -> "Made":
        """Copy the policy: nothing is learnt here."""
        return bring(work)

    def read(self, folder: Path) -> "CriteriaJudge":
        """A judge over the policy of the folder."""
        from posttrain.reward_model.generative.judges import CriteriaJudge

        writer = self.writer(folder)
        return CriteriaJudge(writer, self.template, self.max_tokens, self.criteria_tokens)
