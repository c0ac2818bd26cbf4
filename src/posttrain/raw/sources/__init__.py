"""Sources of raw rows: a seed in, rows out, and a `Skipped` for each upstream row left behind.

To add a source, write a module with a generator function of a seed (positional) and its
options (keyword-only), and add a line to SOURCES; one that reads files also has a line in
READS. A source makes no judgement that a filter of `curate` could make; it skips only what
cannot be told as a row.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from posttrain.plugins import Plugin, build
from posttrain.raw.sources.hub import hub
from posttrain.raw.sources.jsonl import jsonl, jsonl_reads
from posttrain.raw.sources.judging import judging, judging_reads
from posttrain.raw.sources.math_files import math_files, math_files_reads
from posttrain.raw.sources.multi_skill import multi_skill
from posttrain.raw.sources.preference_files import preference_files, preference_files_reads
from posttrain.raw.sources.procedural import procedural
from posttrain.raw.sources.source import Skipped
from posttrain.records import RawRow

__all__ = ["READS", "SOURCES", "Skipped", "Source", "files_read"]

Source = Callable[..., Iterator[RawRow | Skipped]]

SOURCES: dict[str, Source] = {
    "procedural": procedural,
    "jsonl": jsonl,
    "math_files": math_files,
    "preference_files": preference_files,
    "multi_skill": multi_skill,
    "hub": hub,
    "judging": judging,
}

READS: dict[str, Callable[..., list[Path]]] = {
    "jsonl": jsonl_reads,
    "math_files": math_files_reads,
    "preference_files": preference_files_reads,
    "judging": judging_reads,
}


def files_read(plugin: Plugin) -> list[Path]:
    """The files outside the graph that a source reads, present or not."""
    return build(READS, plugin)() if plugin.name in READS else []
