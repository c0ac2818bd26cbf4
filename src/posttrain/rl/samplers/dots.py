"""Prompts of middling difficulty, the difficulty predicted from that of others like them."""

from collections.abc import Sequence
from typing import Annotated, Any

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from posttrain.errors import ConfigError, Fault
from posttrain.records import Prompt
from posttrain.rl.pool import Pool, Seen
from posttrain.rl.samplers.difficulty import Fitting, predict
from posttrain.rl.samplers.uniform import uniform


def dots(
    pool: Pool,
    count: int,
    /,
    *,
    every: PositiveInt = 2,
    temperature: PositiveFloat = 1e-3,
    references: Annotated[int, Field(ge=8)] = 256,
    fewest: Annotated[int, Field(ge=8)] = 32,
    explore: Annotated[float, Field(ge=0, lt=1)] = 0.25,
    width: PositiveInt = 128,
    epochs: PositiveInt = 20,
    learning_rate: PositiveFloat = 1e-3,
) -> list[Prompt]:
    """Prompts whose predicted success rate is near one half (DOTS, arXiv:2506.05316).

    Drawn without replacement by exp(-|rate - 1/2| / temperature), the rate predicted by attention
    over the `references` newest groups; every `every` draws the predictor is fitted anew, from
    random weights. The paper rolls out random references for it, at an extra cost; here the groups
    of the run itself serve, a share `explore` of each draw staying uniform so that they cover all
    difficulties (ours). Uniform until there are `fewest` references (ours). The paper's `width` is
    896.
    """
    memory = pool.memory.setdefault("dots", {"references": [], "queue": [], "due": 0})
    known = memory["references"] = newest(memory["references"], pool.recent, references)
    metrics = pool.memory.setdefault("metrics", {})
    metrics["dots/references"] = float(len(known))
    if len(known) < min(fewest, references):
        return uniform(pool, count)
    taken = uniform(pool, int(explore * count))
    wanted = count - len(taken)
    if pool.draws >= memory["due"] or len(without(memory["queue"], taken)) < wanted:
        fitting = Fitting(width, epochs, learning_rate)
        order, found = ranked(pool, known, temperature, fitting)
        memory.update(queue=order[: (every + 1) * count], due=pool.draws + every)
        metrics.update(found)
    queue = without(memory["queue"], taken)
    memory["queue"] = queue[wanted:]
    by_id = {prompt.id: prompt for prompt in pool.prompts}
    taken += [by_id[key] for key in queue[:wanted]]
    return taken + uniform(pool, count - len(taken))


def newest(known: list[list[Any]], recent: Sequence[Seen], most: int) -> list[list[Any]]:
    """The success rates of the groups seen last [id, rate], one for each prompt, newest last.

    A rate is the group's mean reward, kept within [0, 1].
    """
    rates = dict(known)
    for seen in recent:
        if seen.rewards:
            rates.pop(seen.prompt_id, None)
            mean = sum(seen.rewards) / len(seen.rewards)
            rates[seen.prompt_id] = min(1.0, max(0.0, mean))
    return [list(pair) for pair in rates.items()][-most:]


def without(queue: list[str], taken: Sequence[Prompt]) -> list[str]:
    """The ids in the queue of prompts that were not taken."""
    gone = {prompt.id for prompt in taken}
    return [key for key in queue if key not in gone]


def ranked(
    pool: Pool, known: list[list[Any]], temperature: float, fitting: Fitting
) -> tuple[list[str], dict[str, float]]:
    """The ids of all prompts in the order of the draw, and what the fit was like."""
    if pool.embed is None:
        raise ConfigError(
            Fault(
                "no embeddings of the prompts",
                "rl.prompt_sampler.dots",
                "difficulty is predicted from prompts that are alike, and this pool cannot say",
                "give the pool an `embed`, or take another sampler",
            )
        )
    rng = torch.Generator().manual_seed(pool.rng("dots").getrandbits(62))
    places = {prompt.id: place for place, prompt in enumerate(pool.prompts)}
    vectors_PH = standardised(pool.embed(pool.prompts))
    chosen_R = torch.tensor([places[key] for key, _ in known])
    rates_R = torch.tensor([rate for _, rate in known])
    rates_P, metrics = predict(vectors_PH, vectors_PH[chosen_R], rates_R, fitting, rng)
    order = drawn_order(rates_P, temperature, rng)
    return [pool.prompts[place].id for place in order], metrics


def standardised(vectors_PH: Tensor) -> Tensor:
    """Each column with mean 0 and deviation 1, float32: pooled embeddings share a large mean."""
    vectors_PH = vectors_PH.double()
    spread_H = vectors_PH.std(dim=0, correction=0).clamp(min=1e-12)
    return ((vectors_PH - vectors_PH.mean(dim=0)) / spread_H).float()


def preference(rates_P: Tensor, temperature: float) -> Tensor:
    """Log of each prompt's weight in the draw: the further from 1/2, the less."""
    return -(rates_P.double() - 0.5).abs() / temperature


def drawn_order(rates_P: Tensor, temperature: float, rng: torch.Generator) -> list[int]:
    """All prompts in the order in which draws by weight, without replacement, would take them.

    Sorting log-weights with Gumbel noise does that (arXiv:1903.06059) and survives weights that
    are 0 in floating point.
    """
    noise_P = torch.rand(len(rates_P), generator=rng, dtype=torch.float64).clamp(1e-300)
    scores_P = preference(rates_P, temperature) - (-noise_P.log()).log()
    return scores_P.argsort(descending=True, stable=True).tolist()
