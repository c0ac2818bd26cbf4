"""Label audit: what wrong labels do to a suite's score, and to the order of policies.

People read a part of a suite's items and say which labels are wrong. Scores on that part with the
labels as they were and as they should be tell the damage; the rank correlation of policies between
part and whole tells whether the published order survives. After a text-to-SQL audit, in which raw
labels kept the order (0.85) and corrected ones did not (0.32).
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from posttrain.artifacts import read_rows
from posttrain.benchmark.measure import MAIN, Result
from posttrain.benchmark.scorers import same_text
from posttrain.benchmark.suites import Item, Suite
from posttrain.errors import ConfigError, Fault
from posttrain.records import Record, Sample
from posttrain.samples import by_verifier
from posttrain.statistics import Array

CHECKS: dict[str, Callable[..., bool]] = {
    "verified": by_verifier,
    "exact_match": same_text,
    "multiple_choice": lambda prompt, response: response == prompt.answer,
}
"""Scorers whose recorded responses can be held against another answer."""


class Audited(Record):
    """What an auditor says of an item: whether its label is `wrong`, and the right `answer` if
    there is one; without it the item is dropped from the corrected score."""

    suite: str
    item_id: str
    wrong: bool
    answer: str | None = None


def read_audit(path: str, suites: Sequence[Suite]) -> dict[str, dict[str, Audited]]:
    """Suite -> item -> verdict; ConfigError for a suite that is not run or cannot be re-scored."""
    file, found = Path(path), {suite.name: dict[str, Audited]() for suite in suites}
    scorers = {suite.name: suite.scorer for suite in suites}
    for row in read_rows(file.parent, Audited, file.name):
        if scorers.get(row.suite) not in CHECKS:
            why = "it is not among the suites of this run, or its scorer cannot take other answers"
            mend = f"name only suites of {', '.join(CHECKS)}"
            raise ConfigError(Fault(f"suite `{row.suite}` cannot be audited", path, why, mend))
        found[row.suite][row.item_id] = row
    return {name: rows for name, rows in found.items() if rows}


def audits(
    results: Sequence[Result],
    items: Mapping[str, Sequence[Item]],
    verdicts: Mapping[str, Mapping[str, Audited]],
    folders: Sequence[str],
) -> dict[str, dict[str, float]]:
    """The audit of each suite that has one; `folders` hold the scores of other policies."""
    others = [list(read_rows(Path(folder), Sample)) for folder in folders] if verdicts else []
    found = {}
    for result in results:
        name = result.suite.name
        if name in verdicts:
            policies = [result.rows[MAIN], *others]
            found[name] = audited(result.suite, items[name], verdicts[name], policies)
    return found


def audited(
    suite: Suite,
    items: Sequence[Item],
    verdicts: Mapping[str, Audited],
    policies: Sequence[Sequence[Sample]],
) -> dict[str, float]:
    """The audit of one suite; `policies` are sample rows of each policy, the run's own first.

    `error_share` of the audited labels; `full`, `raw` and `corrected`: the first policy's score on
    all items, on the audited ones, and there with mended labels. With more policies `rank_raw` and
    `rank_corrected`, Spearman's correlation of `raw` and of `corrected` with `full` (left out where
    all policies tie), and `largest_shift`, ranks that a policy moves from raw to corrected.
    """
    table = np.array([_triple(suite, items, verdicts, rows) for rows in policies])
    wrong = sum(verdict.wrong for verdict in verdicts.values())
    names = ("full", "raw", "corrected")
    found = {"audited": len(verdicts), "error_share": wrong / len(verdicts)}
    found |= {name: float(of) for name, of in zip(names, table[0], strict=True)}
    if len(policies) > 1:
        full, raw, corrected = table.T
        found["policies"] = len(policies)
        found["rank_raw"] = spearman(full, raw)
        found["rank_corrected"] = spearman(full, corrected)
        found["largest_shift"] = float(np.abs(ranks(raw) - ranks(corrected)).max())
    return {name: float(value) for name, value in found.items() if np.isfinite(value)}


def _triple(
    suite: Suite,
    items: Sequence[Item],
    verdicts: Mapping[str, Audited],
    rows: Sequence[Sample],
) -> tuple[float, float, float]:
    prompts = {item.prompt.id: item.prompt for item in items}
    full: list[float] = []
    raw: list[float] = []
    corrected: list[float] = []
    for row in rows:
        verdict = verdicts.get(row.item_id)
        if row.suite != suite.name or row.item_id not in prompts:
            continue
        full.append(row.correct)
        if verdict is None:
            continue
        raw.append(row.correct)
        if not verdict.wrong:
            corrected.append(row.correct)
        elif verdict.answer is not None:
            mended = prompts[row.item_id].model_copy(update={"answer": verdict.answer})
            corrected.append(float(CHECKS[suite.scorer](mended, row.response)))
    means = [sum(each) / len(each) if each else float("nan") for each in (full, raw, corrected)]
    return means[0], means[1], means[2]


def ranks(values_P: Array) -> Array:
    """Ranks from 1, the largest first; equal values share their mean rank."""
    return np.array(
        [1 + (values_P > own).sum() + ((values_P == own).sum() - 1) / 2 for own in values_P]
    )


def spearman(ours_P: Array, theirs_P: Array) -> float:
    """Rank correlation with ties; NaN where one side does not tell the policies apart."""
    a, b = ranks(ours_P), ranks(theirs_P)
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale > 0 else float("nan")
