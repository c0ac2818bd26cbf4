"""A process reward model: how likely each step of a solution is right."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from posttrain.reward_model.kinds import Made, Work
    from posttrain.reward_model.process import ProcessJudge

Reduction = Literal["min", "product", "last"]


class Process:
    """A head at the end of each step, trained by cross-entropy on step labels (arXiv:2305.20050).

    A line is a step. Its label comes from the pair it stands in: the chosen side's steps are right,
    and so are the rejected one's up to the first that departs from the chosen side; that one and
    all after it are wrong. `reading: both` reads the steps last to first as well, and takes the
    mean of a step's two values (BiPRM, arXiv:2508.01682). `reduction` makes the score of a response
    of its steps: the least likely one, the product of all, or the last.
    """

    def __init__(
        self,
        *,
        reading: Literal["forward", "both"] = "forward",
        reduction: Reduction = "min",
    ) -> None:
        self.reading = reading
        self.reduction = reduction

    def make(self, work: "Work") -> "Made":
        """Train on both sides of each pair, and write the model with any adapter merged."""
        from posttrain.hf_trainer import train
        from posttrain.policies import save_policy
        from posttrain.reward_model.kinds import Made
        from posttrain.reward_model.process import labelled_rows, step_trainer

        rows = labelled_rows(work)
        trainer = step_trainer(work, rows, both=self.reading == "both")
        done = train(trainer, work.journal)
        save_policy(done.model, work.tokenizer, work.folder)
        seen = trainer.train_dataset
        right = [each for row in rows for each in row.right]
        return Made(
            steps=trainer.state.global_step,
            epochs=len(seen) / len(rows),
            tokens=sum(map(len, seen["ids"])) * (2 if self.reading == "both" else 1),
            train_loss_first=done.logged[0]["loss"],
            train_loss_last=done.logged[-1]["loss"],
            trained=done.model,
            numbers={"solutions": len(rows), "labels": len(right), "right": sum(right)},
        )

    def read(self, folder: Path) -> "ProcessJudge":
        """The classifier of a plain Hugging Face folder."""
        from posttrain.reward_model.judge import read_scoring_model
        from posttrain.reward_model.process import ProcessJudge

        model, tokenizer = read_scoring_model(folder)
        both = self.reading == "both"
        return ProcessJudge(model, tokenizer, both=both, reduction=self.reduction)
