"""rows, finished -> prompts, demonstrations, preferences, evaluation: what needs all the rows.

The third of the three tasks that curate one file on many machines. Its outputs are, byte for
byte, those of `curate` on the same rows.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from posttrain.artifacts import In, Out
from posttrain.curate.parts import FINISHED
from posttrain.curate.stage import CurateConfig, CurateReport, chain_of, exposure, still_holds
from posttrain.journal import Journal
from posttrain.records import Demonstration, Preference, Prompt, RawRow

__all__ = ["CurateReduceConfig", "exposure", "run", "still_holds"]


class CurateReduceConfig(CurateConfig):
    """The options of `curate`."""

    shares = ("curate",)


def run(
    config: CurateReduceConfig,
    *,
    rows: Annotated[Path, In(RawRow)],
    finished: Annotated[Sequence[Path], In(FINISHED)],
    prompts: Annotated[Path, Out(Prompt)],
    demonstrations: Annotated[Path, Out(Demonstration)],
    preferences: Annotated[Path, Out(Preference)],
    evaluation: Annotated[Path, Out(Prompt)],
    journal: Journal,
) -> CurateReport:
    """Let the filters with memory decide over all parts, and write what is kept."""
    from posttrain.curate.concluding import conclude
    from posttrain.curate.parts import gather

    operators = chain_of(config)
    outputs = (evaluation, demonstrations, preferences, prompts)
    shards = gather(finished, rows, config, operators)
    return conclude(config, operators, shards, rows=rows, outputs=outputs)
