"""One prompt, over and over."""

from typing import Annotated

from pydantic import Field

from posttrain.errors import ConfigError, Fault
from posttrain.records import Prompt
from posttrain.rl.pool import Pool


def repeat_one(
    pool: Pool, count: int, /, *, prompt_id: str = "", place: Annotated[int, Field(ge=0)] = 0
) -> list[Prompt]:
    """One prompt fills the batch (Polymath learning, arXiv:2601.03111).

    It is the one called `prompt_id`, or, without a name, the one at `place` in the pool's first
    order. That it is repeated within a batch is assumed. `repeat_one/saturated` is 1 once all its
    groups of the last draw had equal rewards: it teaches nothing any more.
    """
    chosen = pool.first(place + 1)[place:]
    if prompt_id:
        chosen = [prompt for prompt in pool.prompts if prompt.id == prompt_id]
    if not chosen:
        raise ConfigError(
            Fault(
                f"no prompt {prompt_id or f'at place {place}'}",
                "rl.prompt_sampler.repeat_one",
                f"it is not among the {len(pool.prompts)} prompts that this run may draw",
                "name one that curation kept, or raise `rl.max_prompts`",
            )
        )
    silent = [len(set(seen.rewards)) <= 1 for seen in pool.recent]
    saturated = float(bool(silent) and all(silent))
    pool.memory["metrics"] = {"prompts/unique": 1.0, "repeat_one/saturated": saturated}
    return chosen[:1] * count
