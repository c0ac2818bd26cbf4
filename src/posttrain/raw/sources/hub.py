"""Rows from a dataset of the Hugging Face hub, or from a local folder in its layout."""

from collections.abc import Iterator
from typing import Literal

from posttrain.errors import ConfigError, DataError, Fault, PosttrainError, TransientError, accepted
from posttrain.raw.sources.source import Skipped
from posttrain.records import RawRow

_COLUMNS = ("prompt", "answer", "response", "chosen", "rejected", "difficulty", "agreement")


def hub(
    seed: int,
    /,
    *,
    dataset: str,
    task: str,
    columns: dict[str, str],
    revision: str | None = None,
    configuration: str | None = None,
    upstream_split: str = "train",
    split: Literal["train", "eval"] = "train",
    limit: int | None = None,
) -> Iterator[RawRow | Skipped]:
    """Yield rows of `dataset` at `revision`; `columns` maps a field of `RawRow` to its column.

    Pin `revision` to a commit: a branch that moves gives other rows under the same config.
    """
    where = "raw.sources.hub.columns"
    faults = [
        Fault(f"unknown field `{key}`", f"{where}.{key}", "no such field", accepted(key, _COLUMNS))
        for key in columns
        if key not in _COLUMNS
    ]
    if "prompt" not in columns:
        mend = "name the column that holds the prompt"
        faults.append(Fault("no column for `prompt`", where, "every row needs a prompt", mend))
    if faults:
        raise ConfigError(*faults)
    for count, upstream in enumerate(_load(dataset, configuration, revision, upstream_split)):
        if limit is not None and count >= limit:
            return
        missing = [column for column in columns.values() if column not in upstream]
        if missing:
            why = f"row {count} has {', '.join(sorted(upstream))}"
            what = f"missing column `{missing[0]}`"
            raise DataError(Fault(what, f"{dataset}:{upstream_split}", why, f"mend {where}"))
        texts = {key: upstream[column] for key, column in columns.items()}
        level, agreement = texts.pop("difficulty", None), texts.pop("agreement", None)
        given = {key: None if value is None else str(value) for key, value in texts.items()}
        yield RawRow.of(
            source=f"hub/{dataset}",
            task=task,
            split=split,
            prompt=given["prompt"] or "",
            difficulty=None if level is None else round(float(str(level))),
            agreement=None if agreement is None else float(str(agreement)),
            answer=given.get("answer"),
            response=given.get("response"),
            chosen=given.get("chosen"),
            rejected=given.get("rejected"),
        )


def _load(
    name: str, configuration: str | None, revision: str | None, split: str
) -> Iterator[dict[str, object]]:
    from datasets import load_dataset

    try:
        yield from load_dataset(name, configuration, revision=revision, split=split)
    except (FileNotFoundError, ValueError) as error:
        raise DataError(_fault(name, error, "check the name, revision and split")) from None
    except OSError as error:
        raise _unreachable(name, error) from None


def _unreachable(name: str, error: Exception) -> PosttrainError:
    return TransientError(_fault(name, error, "run again, or bring the rows with `jsonl`"))


def _fault(name: str, error: Exception, mend: str) -> Fault:
    return Fault("the dataset cannot be read", f"hub:{name}", str(error).split("\n")[0], mend)
