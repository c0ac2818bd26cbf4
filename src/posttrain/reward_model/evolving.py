"""Self-evolution of a reward model: it labels pairs that nobody did, and learns from them too."""

import random
from collections.abc import Sequence

import torch
from transformers import set_seed

from posttrain.engines import Sampling
from posttrain.engines.transformers import TransformersEngine
from posttrain.errors import DataError, Fault
from posttrain.journal import Journal
from posttrain.policies import load_policy
from posttrain.records import Preference, content_id
from posttrain.reward_model.judge import RewardModelJudge, TokenPair, token_pairs
from posttrain.reward_model.kinds import Made, Work
from posttrain.reward_model.kinds.bradley_terry import trained_by
from posttrain.reward_model.kinds.bt_adaptive_margin import AdaptiveMargin
from posttrain.reward_model.margins import LiveMargin
from posttrain.reward_model.pooling import load_scoring_model
from posttrain.reward_model.trainer import reward_trainer
from posttrain.samples import seed_of


class RoundJournal(Journal):
    """A journal of one round: its own checkpoints, its steps after those of the rounds before."""

    def __init__(self, whole: Journal, number: int, before: int) -> None:
        super().__init__(whole.curves.parent, scratch=whole.scratch / f"round-{number}")
        self.whole = whole
        self.before = before

    def log(self, step: int, **metrics: float) -> None:
        self.whole.log(self.before + step, **metrics)

    def progress(self, done: int, total: int, unit: str = "step", **shown: float) -> None:
        self.whole.progress(done, total, f"{self.scratch.name} {unit}", **shown)


def evolved(kind: AdaptiveMargin, work: Work) -> Made:
    """The judge of the round with the best accuracy on pairs on which nothing trains."""
    if not kind.rounds:
        return trained_on(kind, work, work.pairs, work.journal)
    gold, check = checked(work.pairs, kind.check_share)
    best, labelled = trained_on(kind, work, gold, RoundJournal(work.journal, 0, 0)), 0
    accuracies, steps = [accuracy(best, work, check)], best.steps
    for number in range(1, kind.rounds + 1):
        more = self_labelled(kind, work, best, gold, number)
        journal = RoundJournal(work.journal, number, steps)
        again = trained_on(kind, work, [*gold, *more], journal)
        steps += again.steps
        accuracies.append(accuracy(again, work, check))
        if accuracies[-1] <= max(accuracies[:-1]):
            break
        best, labelled = again, len(more)
    numbers = {f"round_{at}/check_accuracy": value for at, value in enumerate(accuracies)}
    return best._replace(numbers={"check_pairs": len(check), "self_labelled": labelled, **numbers})


def checked(pairs: Sequence[TokenPair], share: float) -> tuple[list[TokenPair], list[TokenPair]]:
    """The pairs to learn from, and those to stop by, of a share of the prompts, at least one."""
    prompts = sorted({p.row.prompt_id for p in pairs}, key=lambda one: content_id("check", one))
    few = set(prompts[: max(1, round(share * len(prompts)))])
    if len(few) == len(prompts):
        why = f"check_share {share} of {len(prompts)} prompts leaves none to learn from"
        mend = "give pairs of more prompts, or set rounds to 0"
        raise DataError(Fault("not enough prompts", "reward_model.kind.rounds", why, mend))
    learned = [pair for pair in pairs if pair.row.prompt_id not in few]
    return learned, [pair for pair in pairs if pair.row.prompt_id in few]


def trained_on(kind: AdaptiveMargin, work: Work, pairs: list[TokenPair], journal: Journal) -> Made:
    """A judge trained on the pairs, from the policy and the seed."""
    set_seed(work.config.seed)
    model = load_scoring_model(work.policy, work.config.pooling)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    live = LiveMargin(kind, model.to(device), work)
    trainer = reward_trainer(work.config, model, work.tokenizer, pairs, journal, live)
    return trained_by(trainer, journal, len(pairs))


def gaps_of(made: Made, work: Work, pairs: Sequence[TokenPair]) -> list[float]:
    """By how many nats each chosen response scores above the rejected one."""
    judge = RewardModelJudge(made.trained, work.tokenizer)
    high = judge.score_ids([pair.chosen for pair in pairs])
    low = judge.score_ids([pair.rejected for pair in pairs])
    return [a - b for a, b in zip(high, low, strict=True)]


def accuracy(made: Made, work: Work, pairs: Sequence[TokenPair]) -> float:
    """The share of pairs whose chosen response scores higher."""
    return sum(gap > 0 for gap in gaps_of(made, work, pairs)) / len(pairs)


def self_labelled(
    kind: AdaptiveMargin, work: Work, made: Made, gold: Sequence[TokenPair], number: int
) -> list[TokenPair]:
    """Pairs that the policy draws for prompts of the gold ones, with the winner the judge sees."""
    rng = random.Random(f"{work.config.seed}/self-labelled {number}")
    asked = sorted({pair.row.prompt for pair in gold})
    prompts = rng.sample(asked, min(kind.draws, len(asked)))
    ids = {pair.row.prompt: pair.row.prompt_id for pair in gold}
    seed = seed_of(work.config.seed, "self-labelled", number)
    sampling = Sampling(samples=2, max_new_tokens=kind.max_new_tokens, seed=seed)
    drawn = TransformersEngine(load_policy(work.policy)).generate(prompts, sampling)
    rows = [
        Preference(
            id=content_id(prompt, one.text, other.text),
            prompt_id=ids[prompt],
            prompt=prompt,
            chosen=one.text,
            rejected=other.text,
            source="self-labelled",
        )
        for prompt, (one, other) in zip(prompts, drawn, strict=True)
        if one.text != other.text
    ]
    pairs = token_pairs(work.tokenizer, rows)
    fitting = [pair for pair in pairs if pair.longest <= work.config.max_length]
    gaps = gaps_of(made, work, fitting)
    sure = confident(gaps, threshold(gaps, kind.quantile))
    return [fitting[at] if first else swapped(fitting[at]) for at, first in sure]


def threshold(gaps: Sequence[float], quantile: float) -> float:
    """The quantile of the sizes of the gaps; 0 of none."""
    return float(torch.tensor(gaps).abs().quantile(quantile)) if gaps else 0.0


def confident(gaps: Sequence[float], tau: float) -> list[tuple[int, bool]]:
    """The places of gaps larger than `tau`, and whether the first of the pair wins."""
    return [(at, gap > 0) for at, gap in enumerate(gaps) if abs(gap) > tau]


def swapped(pair: TokenPair) -> TokenPair:
    """The pair with its sides changed."""
    update = {"chosen": pair.row.rejected, "rejected": pair.row.chosen}
    return TokenPair(pair.row.model_copy(update=update), pair.rejected, pair.chosen)
