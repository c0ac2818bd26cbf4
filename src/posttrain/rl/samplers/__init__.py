"""Prompt samplers: the pool of prompts and what is known about them in, the next prompts out.

A sampler keeps no state of its own; what must survive a kill is in the `Pool`, and what a reader
should see is in its `memory["metrics"]`, name -> number. To add one, write the function in a file
of its name and a line in PROMPT_SAMPLERS.
"""

from collections.abc import Callable

from posttrain.records import Prompt
from posttrain.rl.samplers.difficulty_band import difficulty_band
from posttrain.rl.samplers.dots import dots
from posttrain.rl.samplers.repeat_one import repeat_one
from posttrain.rl.samplers.uniform import uniform
from posttrain.rl.samplers.vade import vade

PROMPT_SAMPLERS: dict[str, Callable[..., list[Prompt]]] = {
    "uniform": uniform,
    "difficulty_band": difficulty_band,
    "repeat_one": repeat_one,
    "vade": vade,
    "dots": dots,
}
