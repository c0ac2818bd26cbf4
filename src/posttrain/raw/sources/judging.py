"""Pairs of another source as prompts: which response is better? For judges that `rl` trains."""

from collections.abc import Iterator
from pathlib import Path

from posttrain.errors import ConfigError, Fault
from posttrain.plugins import Plugin, build
from posttrain.raw.sources.source import Skipped
from posttrain.records import RawRow
from posttrain.reward_model.generative.pairs import judging_row
from posttrain.reward_model.generative.templates import TemplateName


def judging(
    seed: int, /, *, pairs: Plugin, template: TemplateName = "boxed"
) -> Iterator[RawRow | Skipped]:
    """Yield each preference of the source `pairs` as a prompt of the task `judging`.

    `template` is what the judge will be asked with. Rows that are no pairs, and pairs of one
    response, are skipped.
    """
    from posttrain.raw.sources import SOURCES

    if pairs.name == "judging":
        where = "raw.sources.judging.pairs"
        raise ConfigError(Fault("pairs of pairs", where, "it reads itself", "name another source"))
    for row in build(SOURCES, pairs, "raw.sources.judging.pairs")(seed):
        if isinstance(row, Skipped):
            yield row
        elif row.kind != "preferences" or row.chosen is None or row.rejected is None:
            yield Skipped(row.source, "not a pair to judge")
        elif row.chosen.split() == row.rejected.split():
            yield Skipped(row.source, "identical pair")
        else:
            yield judging_row(row, template)


def judging_reads(*, pairs: Plugin, template: TemplateName = "boxed") -> list[Path]:
    """The files that the source of the pairs reads."""
    from posttrain.raw.sources import files_read

    return files_read(pairs)
