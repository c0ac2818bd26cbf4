"""Real word problems: GSM8K (arXiv:2110.14168), MAWPS and SVAMP (arXiv:2103.07191) files, and the
prompts of One-Shot-RLVR (arXiv:2504.20571)."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from posttrain.errors import DataError, Fault
from posttrain.raw.sources.source import Line, Skipped, field, json_lines, require, text
from posttrain.records import RawRow
from posttrain.tasks import split_of

MathSet = Literal["gsm8k", "mawps", "svamp", "one_shot_rlvr"]

FILES: dict[MathSet, tuple[str, ...]] = {
    "gsm8k": ("gsm8k/train.jsonl", "gsm8k/test.jsonl"),
    "mawps": tuple(
        f"mawps/{name}.jsonl" for name in ("addsub", "multiarith", "singleeq", "singleop")
    ),
    "svamp": ("svamp/test.jsonl",),
    "one_shot_rlvr": ("one_shot_rlvr/dsr_sub.jsonl",),
}

ALL: tuple[MathSet, ...] = ("gsm8k", "mawps", "svamp")
"""Word problems with whole numbers; the pool of one-shot RL comes only when it is asked for."""

_CALCULATOR = re.compile(r"<<[^<>]*>>")


def math_files(
    seed: int,
    /,
    *,
    folder: str,
    sets: tuple[MathSet, ...] = ALL,
    limit: int | None = None,
) -> Iterator[RawRow | Skipped]:
    """Yield prompts with numeric answers, and demonstrations where upstream has a rationale.

    GSM8K keeps upstream's split and loses its calculator annotations; SVAMP, a test file, is
    all evaluation; MAWPS has no split, so `posttrain.tasks.split_of` of the text decides.
    `limit` caps the upstream rows read of each file.
    """
    require(math_files_reads(folder=folder, sets=sets), "math_files")
    for each in sets:
        for name in FILES[each]:
            for count, line in enumerate(json_lines(Path(folder) / name)):
                if limit is not None and count >= limit:
                    break
                yield from READERS[each](line, name)


def math_files_reads(
    *, folder: str, sets: tuple[MathSet, ...] = ALL, limit: int | None = None
) -> list[Path]:
    """The files that the source reads."""
    return [Path(folder) / name for each in sets for name in FILES[each]]


def gsm8k(line: Line, file: str) -> Iterator[RawRow | Skipped]:
    """A prompt, and from the train file also a demonstration."""
    prompt, rationale = text(line, "question"), _CALCULATOR.sub("", text(line, "answer"))
    _, mark, answer = rationale.rpartition("####")
    if not mark:
        yield Skipped("gsm8k", "no `####` before the answer")
        return
    answer = answer.strip().replace(",", "")
    if file.endswith("test.jsonl"):
        yield RawRow.of(source="gsm8k", task="gsm8k", prompt=prompt, answer=answer, split="eval")
        return
    yield RawRow.of(source="gsm8k", task="gsm8k", prompt=prompt, answer=answer)
    yield RawRow.of(
        source="gsm8k", task="gsm8k", prompt=prompt, answer=answer, response=rationale.strip()
    )


def mawps(line: Line, file: str) -> Iterator[RawRow | Skipped]:
    """A prompt; upstream writes `said .` and `Sara 's`, mended here to `said.` and `Sara's`."""
    prompt = re.sub(r"\s+([.,?!'])", r"\1", text(line, "input")).strip()
    answer = number(field(line, "target"), line.where)
    source = f"mawps/{Path(file).stem}"
    split = split_of(prompt)
    yield RawRow.of(source=source, task="number", prompt=prompt, answer=answer, split=split)


def svamp(line: Line, file: str) -> Iterator[RawRow | Skipped]:
    """A held-out prompt: the body and the question."""
    body = text(line, "Body").strip()
    prompt = f"{body} {field(line, 'Question').strip()}"
    answer = number(field(line, "Answer"), line.where)
    yield RawRow.of(source="svamp", task="number", prompt=prompt, answer=answer, split="eval")


def one_shot_rlvr(line: Line, file: str) -> Iterator[RawRow | Skipped]:
    """A training prompt of the DeepScaleR subset of arXiv:2504.20571."""
    prompt, answer = field(line, "prompt"), field(line, "reward_model")
    if not (isinstance(prompt, list) and prompt and isinstance(answer, dict)):
        yield Skipped("one_shot_rlvr", "no conversation, or no answer")
        return
    told = str(prompt[0].get("content", "")).strip(), str(answer.get("ground_truth", ""))
    yield RawRow.of(source="one_shot_rlvr", task="math", prompt=told[0], answer=told[1])


READERS = {"gsm8k": gsm8k, "mawps": mawps, "svamp": svamp, "one_shot_rlvr": one_shot_rlvr}


def number(value: object, where: str) -> str:
    """An upstream number as people write it: `43.0` is `43`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError(
            Fault("not a number", where, f"the answer is {value!r}", "mend or remove the row")
        )
    return str(int(value)) if value == int(value) else repr(round(float(value), 6))
