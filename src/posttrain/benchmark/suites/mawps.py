"""One- and two-step word problems of MAWPS: the eighth that a hash of the text holds out."""

from collections.abc import Iterator

from posttrain.benchmark.suites.sources import Hub, Upstream, held_out
from posttrain.benchmark.suites.suite import Item, Suite
from posttrain.raw.sources.math_files import mawps
from posttrain.raw.sources.source import Line


def read(line: Line, file: str) -> Iterator[Item]:
    """The rows that the raw source holds out; the rest may be trained on."""
    return held_out(mawps(line, file))


SUITE = Suite(
    name="mawps",
    about=__doc__,
    source=Upstream(
        files=tuple(f"mawps/{n}.jsonl" for n in ("addsub", "multiarith", "singleeq", "singleop")),
        read=read,
        hub=Hub(
            "MU-NLPC/Calc-mawps",
            None,
            "test",
            "38c10053efeafd20ab6ff4e08c3ec17de26c19b7",
            columns={"input": "question", "target": "result"},
            numbers=("target",),
        ),
    ),
    paper="Koncel-Kedziorski et al. 2016, aclanthology.org/N16-1136",
    licence="MIT",
    contamination="no upstream split: posttrain.tasks.split_of keeps trained prompts out",
)
