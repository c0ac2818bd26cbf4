"""Real preference pairs: PandaLM (arXiv:2306.05087) and hh-rlhf harmless (arXiv:2204.05862)."""

import json
import os.path
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from posttrain.errors import DataError, Fault
from posttrain.raw.sources.source import Line, Skipped, field, json_lines, require, text
from posttrain.records import RawRow

PreferenceSet = Literal["pandalm", "hh_rlhf_harmless"]

FILES: dict[PreferenceSet, str] = {
    "pandalm": "pandalm/testset-v1.json",
    "hh_rlhf_harmless": "hh_rlhf_harmless/test.jsonl",
}

_TURN = "\n\nAssistant:"


def preference_files(
    seed: int,
    /,
    *,
    folder: str,
    sets: tuple[PreferenceSet, ...] = ("pandalm",),
    limit: int | None = None,
) -> Iterator[RawRow | Skipped]:
    """Yield pairs that people judged.

    hh_rlhf_harmless holds offensive text, so it comes only when asked for. `limit` caps the
    upstream rows read of each file.
    """
    require(preference_files_reads(folder=folder, sets=sets), "preference_files")
    for each in sets:
        path = Path(folder) / FILES[each]
        lines = json_lines(path) if path.suffix == ".jsonl" else _json_array(path)
        for count, line in enumerate(lines):
            if limit is not None and count >= limit:
                break
            yield pandalm(line) if each == "pandalm" else hh_rlhf(line)


def preference_files_reads(
    *, folder: str, sets: tuple[PreferenceSet, ...] = ("pandalm",), limit: int | None = None
) -> list[Path]:
    """The files that the source reads."""
    return [Path(folder) / FILES[each] for each in sets]


def pandalm(line: Line) -> RawRow | Skipped:
    """The response that at least two of three annotators prefer; a tie is skipped."""
    votes = Counter(field(line, f"annotator{number}") for number in (1, 2, 3))
    choice, count = votes.most_common(1)[0]
    if count < 2:
        return Skipped("pandalm", "no majority of the annotators")
    if choice == 0:
        return Skipped("pandalm", "a tie by majority")
    # Upstream's tooling turned the response "True" of six rows into a boolean.
    responses = {number: str(field(line, f"response{number}")) for number in (1, 2)}
    if choice not in responses:
        return Skipped("pandalm", "a vote for neither response")
    parts = (text(line, "instruction"), text(line, "input"))
    return RawRow.of(
        source="pandalm",
        task="pandalm",
        prompt="\n\n".join(part for part in parts if part),
        chosen=responses[choice],
        rejected=responses[3 - choice],
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


def _json_array(path: Path) -> Iterator[Line]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(
            Fault("not a JSON file", str(path), str(error), "fetch the file again")
        ) from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        why = "the file must hold an array of objects"
        raise DataError(Fault("not a JSON array", str(path), why, "fetch the file again"))
    for index, row in enumerate(rows):
        yield Line(f"{path}[{index}]", row)
