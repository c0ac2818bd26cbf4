"""A model with one score for a conversation, trained to score the better response higher."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from posttrain.journal import Journal

if TYPE_CHECKING:
    from posttrain.reward_model.judge import RewardModelJudge
    from posttrain.reward_model.kinds import Made, Work


class BradleyTerry:
    """-log sigmoid(chosen - rejected - margin), with TRL's RewardTrainer (arXiv:2203.02155)."""

    def make(self, work: "Work") -> "Made":
        """Train the policy with a `pooling` of the stage, and write it with any adapter merged."""
        from posttrain.policies import save_policy
        from posttrain.reward_model.judge import check_pad_token
        from posttrain.reward_model.pooling import load_scoring_model
        from posttrain.reward_model.trainer import reward_trainer

        check_pad_token(work.tokenizer, work.policy)
        model = load_scoring_model(work.policy, work.config.pooling)
        trainer = reward_trainer(work.config, model, work.tokenizer, work.pairs, work.journal)
        made = trained_by(trainer, work.journal, len(work.pairs))
        save_policy(made.trained, work.tokenizer, work.folder)
        return made

    def read(self, folder: Path) -> "RewardModelJudge":
        """The classifier, or the causal model, of a plain Hugging Face folder."""
        from posttrain.reward_model.judge import RewardModelJudge, read_scoring_model

        return RewardModelJudge(*read_scoring_model(folder))


def trained_by(trainer: Any, journal: Journal, pairs: int) -> "Made":
    """Run a reward trainer over so many pairs, and say what that took."""
    from posttrain.hf_trainer import train
    from posttrain.reward_model.kinds import Made
    from posttrain.reward_model.sharing import shared_share

    done = train(trainer, journal)
    seen = trainer.train_dataset
    return Made(
        steps=trainer.state.global_step,
        epochs=len(seen) / pairs,
        tokens=sum(map(len, seen["chosen_ids"])) + sum(map(len, seen["rejected_ids"])),
        shared_tokens=shared_share(trainer),
        train_loss_first=done.logged[0]["loss"],
        train_loss_last=done.logged[-1]["loss"],
        trained=done.model,
    )
