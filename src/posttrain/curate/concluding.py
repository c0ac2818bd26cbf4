"""The end of curation: the filters with memory decide over finished shards, and what is kept is
written kind by kind, in the order of the input."""

from collections.abc import Sequence
from pathlib import Path

from posttrain.artifacts import ROWS
from posttrain.curate.checked import checked
from posttrain.curate.ledger import KINDS, Ledger
from posttrain.curate.mapping import Chain, Finished, settle
from posttrain.curate.shards import row_of
from posttrain.curate.stage import DROPPED, CurateConfig, CurateReport, close, write_plots
from posttrain.errors import DataError, Fault


def conclude(
    config: CurateConfig,
    operators: Chain,
    finished: Sequence[Finished],
    *,
    rows: Path,
    outputs: Sequence[Path],
) -> CurateReport:
    """Write the outputs, folders in the order of `KINDS`, of the finished shards of `rows`."""
    settle(operators, finished)

    def shown(shard: Finished, number: int) -> str:
        text = row_of(rows, shard.shard, number).prompt if config.sample_characters else ""
        return " ".join(text.split())[: config.sample_characters]

    ledger = Ledger([name for name, _ in operators])
    for shard in finished:
        ledger.add(shard)
    folders = dict(zip(KINDS, outputs, strict=True))
    for kind, folder in folders.items():
        folder.mkdir(parents=True)
        with (folder / ROWS).open("wb") as file:
            for shard in finished:
                file.writelines(shard.kept_lines(kind))
    prompts, evaluation = folders["prompts"], folders["evaluation"]
    ledger.list_dropped(finished, prompts / DROPPED, shown)
    report = close(ledger, *checked(operators, ledger, evaluation))
    if not report.kept:
        why = ", ".join(f"{reason} ({count})" for reason, count in report.reasons.items())
        raise DataError(Fault("no row was kept", str(rows), why or "no rows", "mend the rows"))
    write_plots(prompts, report)
    return report
