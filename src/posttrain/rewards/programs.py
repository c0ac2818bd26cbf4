"""Programs in responses: found, and judged by their tests in a sandbox."""

import functools
import io
import re
import tokenize

from pydantic import ValidationError

from posttrain.sandbox.verdicts import CodeTests, Verdict, examine

_BLOCK = re.compile(r"^```[^\n`]*\n(.*?)(?:^```|\Z)", re.DOTALL | re.MULTILINE)
_LAYOUT = {
    tokenize.COMMENT: "",
    tokenize.NL: "",
    tokenize.NEWLINE: "\n",
    tokenize.INDENT: "{",
    tokenize.DEDENT: "}",
}
_OUTSIDE = re.compile(r"\n(?=[^\s#])")


def code_of(response: str, names: tuple[str, ...] = ()) -> str:
    """The program in a response: its last block between fences that defines all the names, else
    its last block; without fences the whole response.

    A response that begins with an indented line goes on with a function that the prompt has
    begun: it is cut where the indentation ends, for a base model writes on.
    """
    blocks: list[str] = _BLOCK.findall(response)
    fitting = [block for block in blocks if all(defines(block, name) for name in names)]
    if blocks:
        return (fitting or blocks)[-1]
    body = response.lstrip("\n")
    return _OUTSIDE.split(body)[0] + "\n" if body[:1] in (" ", "\t") else response


def defines(code: str, name: str) -> bool:
    """Whether some line begins the definition of a name."""
    begun = rf"^\s*(?:(?:async\s+)?def|class)\s+{re.escape(name)}\b|^{re.escape(name)}\s*[:=]"
    return re.search(begun, code, re.MULTILINE) is not None


@functools.lru_cache(maxsize=4096)
def tests_of(answer: str) -> CodeTests | None:
    """The tests in a row's `answer`; None where it holds none."""
    try:
        return CodeTests.model_validate_json(answer)
    except ValidationError:
        return None


@functools.lru_cache(maxsize=4096)
def verdict(code: str, answer: str) -> Verdict | None:
    """What the sandbox says of code, once for each; None where the answer holds no tests."""
    tests = tests_of(answer)
    return None if tests is None else examine(code, tests)


def verify_code(_prompt: str, answer: str, response: str) -> bool:
    """Whether the program in the response passes its tests (`CodeTests` as JSON)."""
    tests = tests_of(answer)
    if tests is None:
        return False
    found = verdict(code_of(response, tests.names), answer)
    return found is not None and found.result == "passed"


def code_prediction(response: str) -> str | None:
    """The program without comments and spacing, so that equal programs are equal texts.

    By tokens: Python's own parser is written in C, and a hostile text can crash it.
    """
    code = code_of(response)
    try:
        tokens = [*tokenize.generate_tokens(io.StringIO(code).readline)]
    except (SyntaxError, tokenize.TokenError):
        return code.strip() or None
    words = (_LAYOUT.get(token.type, token.string) for token in tokens)
    return " ".join(word for word in words if word).strip() or None
