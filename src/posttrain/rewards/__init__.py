"""Rewards: rollouts in, one float per rollout out; a gate makes one number of the parts.

The judge is that of the stage's `judge` port, or None. A number that is not finite drops the
rollout's group, and is counted. To add a reward, write the function and a line in REWARDS.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from statistics import fmean
from typing import Annotated, Literal

from pydantic import Field

from posttrain.errors import ConfigError, Fault, accepted
from posttrain.reward_model.protocol import Judge
from posttrain.rewards.against import against_reference
from posttrain.rewards.ce_rm import ce_rm
from posttrain.rewards.patch_similarity import patch_similarity
from posttrain.rewards.verifiers import Claim, verify, verify_all
from posttrain.rl.rollout import Rollout
from posttrain.tasks import MARK

Reward = Callable[..., list[float]]


def verifier(
    rollouts: Sequence[Rollout],
    _judge: Judge | None,
    /,
    *,
    right: float = 1.0,
    wrong: float = 0.0,
    workers: Annotated[int, Field(ge=0)] = 0,
) -> list[float]:
    """Whether the task's verifier accepts the response; code runs in `workers` sandboxes at a
    time (0: one per core, at most 8)."""
    claims = [Claim(r.prompt.task, r.prompt.text, r.prompt.answer, r.text) for r in rollouts]
    return [right if accepted else wrong for accepted in verify_all(claims, workers)]


def judge(
    rollouts: Sequence[Rollout],
    judge: Judge | None,
    /,
    *,
    scale: Literal["raw", "sigmoid"] = "sigmoid",
    against: Literal["nobody", "reference"] = "nobody",
) -> list[float]:
    """The judge's score; `sigmoid` maps it to (0, 1), beside a verifier's 0 and 1.

    `against: reference`, for BRPO: 1 where the judge prefers the response to the group's reference,
    in both orders if it reads both at once, else -1, and 0 for the reference (arXiv:2506.00103).
    """
    if judge is None:
        raise ValueError("the reward `judge` needs the port `judge`")
    if against == "reference":
        return against_reference(rollouts, judge)
    scores = judge.score([r.prompt.text for r in rollouts], [r.text for r in rollouts])
    return scores if scale == "raw" else [0.5 * (1 + math.tanh(score / 2)) for score in scores]


def format(rollouts: Sequence[Rollout], _judge: Judge | None, /) -> list[float]:
    """1 for a finished response whose last line, and no other, is `#### answer`."""
    return [float(not r.truncated and well_formed(r.text)) for r in rollouts]


def well_formed(response: str) -> bool:
    """Whether the answer is marked once, on the last line, and not empty."""
    last = response.rstrip().rpartition("\n")[2]
    return response.count(MARK) == 1 and last.startswith(f"{MARK} ") and len(last) > len(MARK) + 1


def overlong(
    rollouts: Sequence[Rollout],
    _judge: Judge | None,
    /,
    *,
    max_length: int = 20480,
    buffer: int = 4096,
    factor: float = 1.0,
) -> list[float]:
    """DAPO's soft penalty on length in tokens (arXiv:2503.14476).

    0 up to `max_length - buffer`, then linear down to -factor at `max_length`. Beyond it the
    penalty stays there, as in TRL, open-r1 and OpenRLHF; in verl and NeMo-RL it keeps growing.
    With `buffer` 0 it is 0 or -factor.
    """

    def penalty(length: int) -> float:
        over = length - (max_length - buffer)
        if over <= 0:
            return 0.0
        return -factor * min(1.0, over / buffer if buffer else 1.0)

    return [penalty(len(r.tokens)) for r in rollouts]


def clh(
    rollouts: Sequence[Rollout],
    _judge: Judge | None,
    /,
    *,
    reference_length: Annotated[float, Field(gt=0)] = 200.0,
    low: Annotated[float, Field(ge=0)] = 0.3,
    high: Annotated[float, Field(ge=0)] = 0.6,
    tolerance: Annotated[float, Field(gt=0)] = 0.3,
    gated: bool = False,
) -> list[float]:
    """LiveThinking's length part: r_len = max(0, 1 - d / eps) (arXiv:2510.07685).

    d: how many tokens the response lies outside [low, high] x `reference_length`, which is the
    mean length of the policy that the run starts with; eps = `tolerance` x `reference_length`.
    `gated`: 0 for wrong answers, which are otherwise paid for being short. The paper adds it to
    correctness and helpfulness by weight, assumed 1, 1 and 0.5; `low`, `high` and `tolerance`
    are assumed too.
    """

    def share(rollout: Rollout) -> float:
        length = len(rollout.tokens)
        outside = max(low * reference_length - length, length - high * reference_length, 0.0)
        return max(0.0, 1 - outside / (tolerance * reference_length))

    return [share(r) if not gated or is_right(r) else 0.0 for r in rollouts]


def long2short(
    rollouts: Sequence[Rollout], _judge: Judge | None, /, *, strength: float = 0.2
) -> list[float]:
    """VibeThinker's brevity among the right answers of a group, zero-sum (arXiv:2511.06221).

    With s = 1 / tokens over the right answers: strength * (s - mean s) / max |s - mean s|, 0 where
    they are equally long and for wrong answers. Neighbours with the same prompt are a group.
    """
    found: list[float] = []
    for _, rows in groupby(rollouts, key=lambda rollout: rollout.prompt.id):
        brevity = [1 / max(1, len(r.tokens)) if is_right(r) else None for r in rows]
        among = [s for s in brevity if s is not None]
        mean = fmean(among) if among else 0.0
        most = max((abs(s - mean) for s in among), default=0.0)
        level = len(set(among)) < 2
        found += [0.0 if s is None or level else strength * (s - mean) / most for s in brevity]
    return found


def is_right(rollout: Rollout) -> bool:
    """Whether the task's verifier accepts the response."""
    prompt = rollout.prompt
    return verify(prompt.task, prompt.text, prompt.answer, rollout.text)


REWARDS: dict[str, Reward] = {
    "verifier": verifier,
    "judge": judge,
    "format": format,
    "overlong": overlong,
    "clh": clh,
    "long2short": long2short,
    "patch_similarity": patch_similarity,
    "ce_rm": ce_rm,
}


def check_parts(
    parts: Sequence[str], weights: Mapping[str, float], *, has_judge: bool, where: str
) -> None:
    """Raise ConfigError, with every fault found, when the parts of a reward do not fit."""
    faults = [
        Fault(f"part `{name}` twice", f"{where}.rewards", "a part goes by its name", "name it once")
        for name in sorted({name for name in parts if parts.count(name) > 1})
    ]
    faults += [
        Fault(
            f"weight of unknown part `{name}`",
            f"{where}.reward_weights.{name}",
            "the reward has no such part",
            accepted(name, parts),
        )
        for name in sorted(weights.keys() - set(parts))
    ]
    if "judge" in parts and not has_judge:
        faults.append(
            Fault(
                "no judge",
                f"{where}.rewards",
                "the part `judge` needs the port of that name",
                "give `--judge` a JUDGE artifact, or leave the part out",
            )
        )
    if faults:
        raise ConfigError(*faults)
