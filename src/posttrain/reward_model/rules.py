"""Rules: what can be said of a response by its text and its prompt's alone, in [0, 1].

To add one, write a function of prompt and response whose options are keyword-only, and a line in
RULES. Verifiers are not among them: a judge is not told the answer.
"""

import re
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from posttrain.benchmark.instructions import INSTRUCTIONS, follows
from posttrain.rewards import well_formed
from posttrain.tasks import final_answer
from posttrain.tasks.mistakes import Step, parse, step

Rule = Callable[..., float]

LONGEST = 19
"""Digits of a number that is not read (assumed): Python refuses thousands of them."""


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from None
    return pattern


def _known(instruction: str) -> str:
    if instruction not in INSTRUCTIONS:
        raise ValueError(f"no rule checks it; there are {', '.join(sorted(INSTRUCTIONS))}")
    return instruction


def format(_prompt: str, response: str, /) -> float:
    """1 where the last line, and no other, is `#### answer`."""
    return float(well_formed(response))


def equations(_prompt: str, response: str, /) -> float:
    """The share of the equations `a op b = c` that hold; 0 without any."""
    found = equations_of(response)
    return sum(map(holds, found)) / len(found) if found else 0.0


def grounded(prompt: str, response: str, /) -> float:
    """The share of the equations' operands that the prompt states or an earlier one results in."""
    known = {int(number) for number in re.findall(r"\d+", prompt) if len(number) < LONGEST}
    given = []
    for each in equations_of(response):
        given += [each.left in known, each.right in known]
        known.add(each.result)
    return sum(given) / len(given) if given else 0.0


def concludes(_prompt: str, response: str, /) -> float:
    """1 where the marked answer is the result of the last equation."""
    found = equations_of(response)
    return float(bool(found) and final_answer(response) == str(found[-1].result))


def equations_of(response: str) -> list[Step]:
    """The equations of a response; none where a number is too long to be meant."""
    return [] if re.search(rf"\d{{{LONGEST}}}", response) else parse(response)


def holds(each: Step) -> bool:
    """Whether an equation is true; a division must leave no rest."""
    if each.op == "/":
        return each.right > 0 and each.left == each.right * each.result
    return each == step(each.left, each.op, each.right)


def pattern(
    _prompt: str,
    response: str,
    /,
    *,
    pattern: Annotated[str, AfterValidator(_compiles)],
    wanted: bool = True,
) -> float:
    """1 where the regular expression is found somewhere, or with `wanted: false` nowhere."""
    return float((re.search(pattern, response) is not None) == wanted)


def instruction(
    _prompt: str,
    response: str,
    /,
    *,
    kind: Annotated[str, AfterValidator(_known)],
    parameters: dict[str, Any] | None = None,
) -> float:
    """1 where the response follows an instruction of IFEval (arXiv:2311.07911), by its name."""
    return float(follows(kind, parameters or {}, response) is True)


def brief(
    _prompt: str,
    response: str,
    /,
    *,
    words: Annotated[int, Field(ge=1)] = 200,
    buffer: Annotated[int, Field(ge=1)] = 100,
) -> float:
    """1 up to `words` words, then linearly down to 0 at `buffer` more, as DAPO's penalty falls
    (arXiv:2503.14476)."""
    over = len(response.split()) - words
    return 1.0 - min(1.0, max(0, over) / buffer)


def varied(_prompt: str, response: str, /, *, n: Annotated[int, Field(ge=1)] = 3) -> float:
    """The share of n-grams of lower-cased words that are distinct; 1 of a shorter response."""
    words = response.lower().split()
    grams = Counter(tuple(words[at : at + n]) for at in range(len(words) - n + 1))
    return len(grams) / grams.total() if grams else 1.0


RULES: dict[str, Rule] = {
    "format": format,
    "equations": equations,
    "grounded": grounded,
    "concludes": concludes,
    "pattern": pattern,
    "instruction": instruction,
    "brief": brief,
    "varied": varied,
}
