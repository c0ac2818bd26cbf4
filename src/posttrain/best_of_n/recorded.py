"""Recorded candidates: samples that others drew, read from files as they were published.

A reader yields `Sample` rows item by item with the file's own verdicts, predictions and scores;
nothing is generated or verified again. `tokens` is 0, which says that the file does not tell. To
add one, write the function and a line in RECORDED and in FILES.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from posttrain.artifacts import file_digest
from posttrain.errors import DataError, Fault
from posttrain.plugins import Plugin, build
from posttrain.raw.sources.source import Line, field, json_lines, require, text
from posttrain.records import Sample, content_id
from posttrain.rewards.verifiers import number_of

SOLVERS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")

FILES = {
    "bon_math_cot": "bon_math_cot_100/math_cot_100.jsonl",
    "gsm8k_solutions": "gsm8k/example_model_solutions.jsonl",
}
"""Reader -> its file below `data_folder`."""


def bon_math_cot(*, data_folder: str) -> Iterator[Sample]:
    """MATH problems x 8 responses, with verdicts and a judge's scores (Qwen2.5-Math, MIT)."""
    for line in lines_of("bon_math_cot", data_folder):
        responses = several(line, "response")
        columns = [several(line, name, len(responses)) for name in ("score", "pred", "pred_score")]
        for index, (response, right, said, scores) in enumerate(
            zip(responses, *columns, strict=True)
        ):
            yield Sample(
                suite="bon_math_cot",
                item_id=content_id("math", text(line, "question")),
                index=index,
                prompt=text(line, "question"),
                answer=text(line, "gt"),
                response=str(response or ""),
                correct=float(right is True),
                tokens=0,
                truncated=False,
                judge=first_number(scores),
                prediction=str(said) if said else None,
            )


def gsm8k_solutions(*, data_folder: str) -> Iterator[Sample]:
    """GSM8K test problems x 4 solutions, one each of four systems (arXiv:2110.14168, MIT).

    Two systems are fine-tuned models, two of them choose among 100 samples with a verifier. The
    prediction is the number after the last `A:`, the form of this file.
    """
    for line in lines_of("gsm8k_solutions", data_folder):
        for index, solver in enumerate(SOLVERS):
            told = field(line, solver)
            told = told if isinstance(told, dict) else {}
            solution = str(told.get("solution") or "")
            yield Sample(
                suite="gsm8k_solutions",
                item_id=content_id("gsm8k", text(line, "question")),
                index=index,
                prompt=text(line, "question"),
                answer=text(line, "ground_truth").rpartition("A:")[2].strip(),
                response=solution,
                correct=float(told.get("is_correct") is True),
                tokens=0,
                truncated=False,
                prediction=number_after(solution),
            )


def lines_of(name: str, data_folder: str) -> Iterator[Line]:
    """The lines of a reader's file; DataError when it is not there."""
    path = Path(data_folder) / FILES[name]
    require([path], name)
    return json_lines(path)


def several(line: Line, name: str, length: int | None = None) -> list[Any]:
    """A column that holds a list, one entry a response."""
    found = field(line, name)
    if not isinstance(found, list) or (length is not None and len(found) != length):
        wanted = "a list" if length is None else f"a list of {length}, one entry a response"
        why = f"it holds {str(found)[:60]!r}, where {wanted} is wanted"
        raise DataError(Fault(f"bad column `{name}`", line.where, why, "mend the row"))
    return found


def first_number(scores: Any) -> float:
    """The score in `[3.5]` or `3.5`; NaN where there is no number."""
    found = scores[0] if isinstance(scores, list) and scores else scores
    return float(found) if isinstance(found, int | float) else float("nan")


def number_after(solution: str) -> str | None:
    """The number after the last `A:`, in one form for equal numbers; None if there is none."""
    _, mark, tail = solution.rpartition("A:")
    number = number_of(tail) if mark and len(tail) <= 80 else None
    return None if number is None else str(number)


RECORDED: dict[str, Callable[..., Iterator[Sample]]] = {
    "bon_math_cot": bon_math_cot,
    "gsm8k_solutions": gsm8k_solutions,
}


def recorded_rows(plugin: Plugin | None) -> Iterator[Sample]:
    """The rows of a reader with its options; none of none."""
    return iter(()) if plugin is None else build(RECORDED, plugin, "best_of_n.recorded")()


def file_of(plugin: Plugin) -> Path:
    """The file that a reader reads, present or not."""
    return Path(str(plugin.options.get("data_folder", ""))) / FILES[plugin.name]


def absent(plugin: Plugin) -> Iterator[Fault]:
    """The fault of a file that is not there."""
    try:
        require([file_of(plugin)], plugin.name)
    except DataError as error:
        yield from error.faults


def digest_of_file(plugin: Plugin) -> str:
    """Digest and name of a reader's file: a stored result holds while they are the same."""
    path = file_of(plugin)
    return f"{file_digest(path) if path.is_file() else 'absent'}  {path.name}\n"
