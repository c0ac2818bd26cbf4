"""What an engine is asked and what it answers."""

from typing import NamedTuple


class Sampling(NamedTuple):
    """How to draw. `temperature` 0 is greedy; `top_p` 1 and `top_k` 0 keep every token; `stop`:
    ids of tokens that end a piece, besides the policy's own."""

    samples: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_new_tokens: int = 64
    seed: int = 0
    stop: tuple[int, ...] = ()


class Request(NamedTuple):
    """One completion to go on with: what is `written` so far, and the most tokens to add.

    A token's random number depends on `seed` and its place in the response alone, so that the same
    policy writes the same response in one piece or in several.
    """

    prompt: str
    seed: int
    room: int
    written: tuple[int, ...] = ()


class Completion(NamedTuple):
    """One response. `tokens` end with the end-of-turn token unless `truncated`.

    `logps`: float32 log-probs in nats of each token at the sampling temperature (at 1 when
    greedy), over the whole vocabulary, before top-k and top-p.
    """

    text: str
    tokens: tuple[int, ...]
    logps: tuple[float, ...]
    truncated: bool
