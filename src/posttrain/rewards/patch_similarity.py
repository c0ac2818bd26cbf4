"""The reward `patch_similarity`: how like the true patch a proposed one is, file by file."""

import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from statistics import fmean
from typing import Annotated

from pydantic import Field

from posttrain.rl.rollout import Rollout

_FENCE = re.compile(r"```(?:diff|patch)?\n(.*?)^```", re.DOTALL | re.MULTILINE)
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
# Lines that git writes between two files, outside of any hunk.
_BETWEEN = ("diff ", "index ", "new file", "deleted file", "old mode", "new mode", "similarity ",
            "rename ")  # fmt: skip
_NOWHERE = "/dev/null"


class FormatError(ValueError):
    """The text is no unified diff."""


def patch_similarity(
    rollouts: Sequence[Rollout],
    _judge: object,
    /,
    *,
    thinking: bool = False,
    longest: Annotated[int, Field(ge=1)] = 20_000,
) -> list[float]:
    """SWE-RL: likeness to the true patch, which is the prompt's answer (arXiv:2502.18449).

    For each file that either patch changes, difflib's ratio (autojunk off) of the two diffs,
    hunk headers in and file headers out, 0 where only one changes it; the mean over these files.
    -1 for a response that is no unified diff, plain or in one fence, that changes nothing or
    a file of more than `longest` characters; and with `thinking` for one that is not
    `<think>` something `</think>` and `<solution>` the diff `</solution>`, each tag once.
    """

    def likeness(rollout: Rollout) -> float:
        try:
            found = file_diffs(solution(rollout.text) if thinking else rollout.text)
        except FormatError:
            return -1.0
        if max(map(len, found.values())) > longest:
            return -1.0
        return similarity(file_diffs(rollout.prompt.answer), found)

    return [likeness(rollout) for rollout in rollouts]


def similarity(gold: Mapping[str, str], found: Mapping[str, str]) -> float:
    """The mean likeness over the union of the files; 1 where neither patch changes any."""
    ratios = [
        SequenceMatcher(None, gold[path], found[path], autojunk=False).ratio()
        if path in gold and path in found
        else 0.0
        for path in sorted(gold.keys() | found.keys())
    ]
    return fmean(ratios) if ratios else 1.0


def solution(text: str) -> str:
    """What stands between the solution's tags; FormatError unless each tag is there once."""
    tags = ("<think>", "</think>", "<solution>", "</solution>")
    match = re.search(r"<think>(.*)</think>.*<solution>(.*)</solution>", text, re.DOTALL)
    if match is None or not match[1].strip() or any(text.count(tag) != 1 for tag in tags):
        raise FormatError("the tags are not there exactly once, or the thought is empty")
    return match[2]


def file_diffs(text: str) -> dict[str, str]:
    """File -> its hunks. FormatError on what is no unified diff, or changes nothing."""
    fences = _FENCE.findall(text)
    if len(fences) > 1:
        raise FormatError("more than one patch")
    lines = (fences[0] if fences else text.strip("\n")).splitlines()
    found: dict[str, list[str]] = {}
    at = 0
    while at < len(lines):
        if opens_file(lines, at):
            path = changed_path(lines[at], lines[at + 1])
            if path in found:
                raise FormatError("a file twice")
            at, found[path] = hunks(lines, at + 2)
        elif lines[at].startswith(_BETWEEN):
            at += 1
        else:
            raise FormatError(f"neither a file nor a hunk: {lines[at][:40]!r}")
    if not found:
        raise FormatError("no file")
    return {path: "\n".join(body) for path, body in found.items()}


def opens_file(lines: Sequence[str], at: int) -> bool:
    """Whether two header lines stand here; a line `-- x` that is taken out is no header."""
    after = lines[at + 1 : at + 2]
    return lines[at].startswith("--- ") and any(line.startswith("+++ ") for line in after)


def changed_path(old: str, new: str) -> str:
    """The file that the two header lines name: the new one, or the old one if it is deleted."""
    before, after = (line[4:].split("\t")[0].strip() for line in (old, new))
    path = before if after == _NOWHERE else after
    path = path[2:] if path[:2] in ("a/", "b/") else path
    if not path or path == _NOWHERE:
        raise FormatError("a header that names no file")
    return path


def hunks(lines: Sequence[str], at: int) -> tuple[int, list[str]]:
    """The lines of a file's hunks from `at` on, and where they end."""
    body: list[str] = []
    while at < len(lines):
        header = _HUNK.match(lines[at])
        if header:
            body.append(header[0])
        elif body and not lines[at].startswith(_BETWEEN) and not opens_file(lines, at):
            if lines[at][:1] not in ("", " ", "+", "-", "\\"):
                raise FormatError(f"no line of a hunk: {lines[at][:40]!r}")
            body.append(lines[at] or " ")
        else:
            break
        at += 1
    added, removed = ([line[1:] for line in body if line.startswith(sign)] for sign in ("+", "-"))
    if added == removed:
        raise FormatError("a file that is not changed")
    return at, body
