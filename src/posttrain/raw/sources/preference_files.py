"""Real preference pairs: PandaLM (arXiv:2306.05087), hh-rlhf harmless (arXiv:2204.05862), and
the polite and rude answers of the book Build a Large Language Model (From Scratch)."""

import os.path
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from posttrain.errors import DataError, Fault
from posttrain.raw.sources.source import Line, Skipped, field, file_lines, require, text
from posttrain.records import RawRow

PreferenceSet = Literal["pandalm", "hh_rlhf_harmless", "llms_from_scratch"]

FILES: dict[PreferenceSet, str] = {
    "pandalm": "pandalm/testset-v1.json",
    "hh_rlhf_harmless": "hh_rlhf_harmless/test.jsonl",
    "llms_from_scratch": "llms_from_scratch_sft/instruction-data-with-preference.json",
}

_TURN = "\n\nAssistant:"


def preference_files(
    seed: int,
    /,
    *,
    folder: str,
    sets: tuple[PreferenceSet, ...] = ("pandalm",),
    limit: int | None = None,
    agree: Annotated[int, Field(ge=2, le=3)] = 2,
) -> Iterator[RawRow | Skipped]:
    """Yield pairs that people judged.

    hh_rlhf_harmless holds offensive text, so it comes only when asked for. `limit` caps the
    upstream rows read of each file; `agree` is how many of PandaLM's three annotators must
    prefer one response.
    """
    require(preference_files_reads(folder=folder, sets=sets), "preference_files")
    for each in sets:
        path = Path(folder) / FILES[each]
        for count, line in enumerate(file_lines(path)):
            if limit is not None and count >= limit:
                break
            yield pandalm(line, agree) if each == "pandalm" else READERS[each](line)


def preference_files_reads(
    *,
    folder: str,
    sets: tuple[PreferenceSet, ...] = ("pandalm",),
    limit: int | None = None,
    agree: int = 2,
) -> list[Path]:
    """The files that the source reads."""
    return [Path(folder) / FILES[each] for each in sets]


class Annotations(NamedTuple):
    """A row of PandaLM: two responses, and which one each annotator prefers (1, 2, or 0: a tie)."""

    prompt: str
    responses: tuple[str, str]
    votes: tuple[int, ...]


def pandalm_row(line: Line) -> Annotations:
    """Read a row; DataError for a vote that the format does not know."""
    votes = tuple(field(line, f"annotator{number}") for number in (1, 2, 3))
    if not set(votes) <= {0, 1, 2}:
        why = "it is 0 (tie), 1 or 2"
        raise DataError(Fault(f"bad `annotator`: {votes!r}", line.where, why, "mend the row"))
    parts = (text(line, "instruction"), text(line, "input"))
    # Upstream's tooling turned the response "True" of six rows into a boolean.
    first, second = (str(field(line, f"response{number}")) for number in (1, 2))
    return Annotations("\n\n".join(filter(None, parts)), (first, second), votes)


def pandalm(line: Line, agree: int = 2) -> RawRow | Skipped:
    """The response that at least `agree` of three annotators prefer; a tie is skipped."""
    row = pandalm_row(line)
    [(choice, count)] = Counter(row.votes).most_common(1)
    if count < 2:
        return Skipped("pandalm", "no majority of the annotators")
    if choice == 0:
        return Skipped("pandalm", "a tie by majority")
    if count < agree:
        return Skipped("pandalm", "the annotators do not all agree")
    return RawRow.of(
        source="pandalm",
        task="pandalm",
        prompt=row.prompt,
        chosen=row.responses[choice - 1],
        rejected=row.responses[2 - choice],
        agreement=round(count / 3, 4),
    )


def hh_rlhf(line: Line) -> RawRow | Skipped:
    """The common history up to the last assistant turn that both share, and the two ways on."""
    chosen, rejected = text(line, "chosen"), text(line, "rejected")
    common = os.path.commonprefix([chosen, rejected])  # noqa: RUF071 - texts, not paths
    turn = common.rfind(_TURN)
    if turn < 0:
        return Skipped("hh_rlhf_harmless", "no common history")
    start = turn + len(_TURN)
    return RawRow.of(
        source="hh_rlhf_harmless",
        task="hh_rlhf",
        prompt=chosen[:start].strip(),
        chosen=chosen[start:].strip(),
        rejected=rejected[start:].strip(),
    )


def llms_from_scratch(line: Line) -> RawRow | Skipped:
    """The answer in the better tone, and one that says the same more rudely or more flatly."""
    parts = (text(line, "instruction"), text(line, "input"))
    return RawRow.of(
        source="llms_from_scratch",
        task="llms_from_scratch",
        prompt="\n\n".join(part for part in parts if part),
        chosen=text(line, "chosen"),
        rejected=text(line, "rejected"),
    )


READERS = {"hh_rlhf_harmless": hh_rlhf, "llms_from_scratch": llms_from_scratch}
