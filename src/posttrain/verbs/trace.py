"""`posttrain trace ROW`: where a row came from, what dropped it, and what it reached.

ROW is the id of a row of any dataset or score, the beginning of one, or text of its prompt.
"""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from posttrain.cli import DEFAULT_STORE
from posttrain.command_line import Parser
from posttrain.lineage import shown
from posttrain.lineage.asked import find
from posttrain.lineage.folders import artifacts_in, own_id
from posttrain.lineage.walk import Step, Walk
from posttrain.records import RawRow


def main(argv: Sequence[str]) -> int:
    """Print the tree of a row, or the same as JSON."""
    parser = Parser(prog="posttrain trace", description=__doc__)
    parser.add_argument("row", metavar="ROW")
    add_folders(parser)
    parser.add_argument("--show-offensive", action="store_true", help="texts that may offend, too")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(list(argv))
    artifacts = artifacts_in(given.run)
    row = find(artifacts, given.row)
    steps = Walk(artifacts, own_id(row)).down()
    if given.json:
        texts = shown.texts(row, offensive=given.show_offensive)
        about = {"id": own_id(row), "record": type(row).__name__, "source": shown.source_of(row)}
        tree = [step.model_dump(mode="json") for step in steps]
        print(json.dumps(about | {"texts": texts, "steps": tree}, indent=2))
        return 0
    kind = f" for {row.kind}" if isinstance(row, RawRow) else ""
    head = f"{type(row).__name__} {own_id(row)}{kind}, from {shown.source_of(row)}"
    print(shown.plain(head))
    for line in shown.lines(row, offensive=given.show_offensive):
        print(f"  {line}")
    print()
    print("\n".join(line for step in steps for line in drawn(step)))
    return 0


def add_folders(parser: Parser) -> None:
    """The option that says where to look."""
    store = os.environ.get("POSTTRAIN_STORE") or DEFAULT_STORE
    about = f"run folders, a store, or any folders of artifacts [{store}]"
    parser.add_argument(
        "--run", nargs="+", type=Path, default=[Path(store)], metavar="FOLDER", help=about
    )


def drawn(step: Step, edge: str = "", indent: str = "") -> Iterator[str]:
    """A step and those below it, a line each."""
    mark = {"dropped": "✗ ", "left_out": "– "}.get(step.fate, "")
    yield f"{indent}{edge}{step.artifact} {step.digest[:8]}  {mark}{shown.plain(step.says)}"
    inner = indent + {"": "", "├─ ": "│  ", "└─ ": "   "}[edge]
    for each in step.steps:
        yield from drawn(each, "└─ " if each is step.steps[-1] else "├─ ", inner)
