"""Verifiers: whether a response reaches the known answer, and which answer it gives.

A verifier is one entry of VERIFIERS under the `task` that the rows name. Neither function
raises on any response, however odd. To add one, write the two functions and a line below.
"""

import functools
import logging
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any, NamedTuple

from posttrain.errors import DataError, Fault, accepted
from posttrain.reward_model.generative.pairs import JUDGING, prefers_the_chosen, verdict_of
from posttrain.rewards.programs import code_prediction, verify_code
from posttrain.sandbox import backend_of
from posttrain.sandbox.verdicts import cores
from posttrain.tasks import TASKS, final_answer

LONGEST_ANSWER = 400
"""Characters; a longer final answer is taken for garbage and is never parsed."""

_NUMBER = re.compile(r"([-+]?)[$€£]?(\d[\d,]{0,40})?(\.\d{1,40})?(?:/(\d{1,40}))?%?\.?")
_CHOICE = re.compile(r"\(?([A-Z])\)?(?![A-Za-z])")
_BOXED = re.compile(r"\\boxed\s*{")
# A power of this size, or a power of a power, keeps sympy busy in C where no alarm reaches it.
_HUGE_POWER = re.compile(r"(\^|\*\*)\s*[{(]?\s*(-?\d{4,}|[^+\-=,]{0,40}(\^|\*\*))")

logging.getLogger("math_verify").setLevel(logging.CRITICAL)


class Verifier(NamedTuple):
    """`verify(prompt, answer, response)`; `prediction(response)` in a form that can be counted.

    `sandboxed`: it runs the response's code, in processes of their own.
    """

    verify: Callable[[str, str, str], bool]
    prediction: Callable[[str], str | None]
    sandboxed: bool = False


class Claim(NamedTuple):
    """A response to be verified."""

    task: str
    prompt: str
    answer: str
    response: str


def verify(task: str, prompt: str, answer: str, response: str) -> bool:
    """Whether the response is right.

    Raises DataError for an unknown task, ConfigError for code where no sandbox works, and for
    nothing else but a sandbox that does not start (TransientError).
    """
    return verifier_of(task).verify(prompt, answer, response)


def verify_all(claims: Sequence[Claim], workers: int = 0) -> list[bool]:
    """Verify each; those that run code `workers` at a time (0: one per core, at most 8)."""
    waiting = [c for c in claims if verifier_of(c.task).sandboxed]
    found = {}
    if waiting:
        with ThreadPoolExecutor(workers or cores()) as pool:
            found = dict(zip(waiting, pool.map(lambda c: verify(*c), waiting), strict=True))
    return [found[c] if c in found else verify(*c) for c in claims]


def prediction(task: str, response: str) -> str | None:
    """The final answer, normalised so that equal answers are equal texts; None if there is none."""
    return verifier_of(task).prediction(response)


def verifier_of(task: str) -> Verifier:
    """The verifier of a task; ConfigError where it needs a sandbox and none works."""
    if task not in VERIFIERS:
        raise DataError(
            Fault(
                f"unknown task `{task}`",
                "the rows' field `task`",
                "no verifier has that name, so no response could be judged",
                accepted(task, VERIFIERS),
            )
        )
    if VERIFIERS[task].sandboxed:
        backend_of()
    return VERIFIERS[task]


def number_of(text: str) -> Fraction | None:
    """Read a number as people write it: `$1,234.50`, `-3`, `3/4`, `12%` (as 12); else None."""
    match = _NUMBER.fullmatch(text.strip().replace(" ", ""))
    if match is None or not (match[2] or match[3]):
        return None
    sign, whole, decimals, below = match.groups()
    if below is not None and int(below) == 0:
        return None
    value = Fraction((whole or "0").replace(",", "") + (decimals or "")) / int(below or 1)
    return -value if sign == "-" else value


def _final(response: str) -> str | None:
    given = final_answer(response)
    return given.split("\n")[0].strip() if given else None


def _number_prediction(response: str) -> str | None:
    given = _final(response)
    value = number_of(given) if given and len(given) <= LONGEST_ANSWER else None
    return None if value is None else str(value)


def _verify_number(_prompt: str, answer: str, response: str) -> bool:
    expected = number_of(_final(answer) or answer)
    return expected is not None and _number_prediction(response) == str(expected)


def _choice_prediction(response: str) -> str | None:
    given = _final(response)
    match = _CHOICE.match(given if given is not None else response.strip())
    return match[1] if match else None


def _verify_choice(_prompt: str, answer: str, response: str) -> bool:
    return _choice_prediction(response) == answer.strip("() .")


def _text_prediction(response: str) -> str | None:
    given = _final(response)
    return " ".join(given.casefold().split()) if given else None


def _verify_text(_prompt: str, answer: str, response: str) -> bool:
    return _text_prediction(response) == " ".join(answer.casefold().split())


def math_answer(response: str) -> str | None:
    """What follows the last `####`, else the content of the last `\\boxed{}`, else None."""
    given = _final(response)
    if given:
        return given
    starts = [match.end() for match in _BOXED.finditer(response)]
    if not starts:
        return None
    depth, start = 1, starts[-1]
    for end in range(start, len(response)):
        depth += {"{": 1, "}": -1}.get(response[end], 0)
        if depth == 0:
            return response[start:end].strip() or None
    return None


@functools.lru_cache(maxsize=4096)
def _parsed(text: str) -> tuple[Any, ...]:
    """The readings of an expression by math-verify; empty when there is none."""
    if len(text) > LONGEST_ANSWER or _HUGE_POWER.search(text):
        return ()
    from math_verify import parse  # 0.5 s to import, and only real maths needs it

    plain = text.strip("$")
    return tuple(parse(f"${plain}$", parsing_timeout=_seconds()) or ())


def _seconds() -> int | None:
    """math-verify's time limits are alarms, which only the main thread may set."""
    return 3 if threading.current_thread() is threading.main_thread() else None


def _math_prediction(response: str) -> str | None:
    given = math_answer(response)
    readings = _parsed(given) if given else ()
    return str(readings[0]) if readings else None


def _verify_math(_prompt: str, answer: str, response: str) -> bool:
    given = math_answer(response)
    if given is None:
        return False
    expected, found = _parsed(math_answer(answer) or answer), _parsed(given)
    if not expected or not found:
        return False
    from math_verify import verify as equal

    return bool(equal([*expected], [*found], timeout_seconds=_seconds()))


def _procedural(name: str) -> Verifier:
    return Verifier(TASKS[name].verify, _PREDICTIONS.get(name, _compact))


def _listed(response: str) -> str | None:
    given = final_answer(response)
    return ", ".join(sorted(part.strip() for part in given.split(","))) if given else None


def _compact(response: str) -> str | None:
    given = final_answer(response)
    return "".join(given.split()) or None if given else None


def _whole(response: str) -> str | None:
    return response.strip() or None


_PREDICTIONS: dict[str, Callable[[str], str | None]] = {
    "knights_knaves": _listed,
    "bugfix": _whole,
}

_number = Verifier(_verify_number, _number_prediction)

VERIFIERS: dict[str, Verifier] = {
    **{name: _procedural(name) for name in TASKS},
    "number": _number,
    "gsm8k": _number,
    "math": Verifier(_verify_math, _math_prediction),
    "choice": Verifier(_verify_choice, _choice_prediction),
    "text": Verifier(_verify_text, _text_prediction),
    JUDGING: Verifier(prefers_the_chosen, verdict_of),
    "code": Verifier(verify_code, code_prediction, sandboxed=True),
}
