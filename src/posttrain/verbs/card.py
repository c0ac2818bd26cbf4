"""`posttrain card FOLDER...`: a card in Markdown and HTML of each dataset folder."""

from collections.abc import Sequence
from pathlib import Path

from posttrain.artifacts import ANY, In, verify
from posttrain.command_line import Parser


def main(argv: Sequence[str]) -> int:
    """Write `OUT/NAME.md` and `OUT/NAME.html` for each folder; its digest is checked first."""
    parser = Parser(prog="posttrain card", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--out", type=Path, default=Path("data/cards"), help="[data/cards]")
    parser.add_argument("--examples", type=int, default=3, help="rows that are shown [3]")
    given = parser.parse_args(list(argv))
    from posttrain.select.card import card_of
    from posttrain.select.card_page import markdown, page

    for folder in given.folders:
        verify(folder, In(ANY))
    given.out.mkdir(parents=True, exist_ok=True)
    for folder in given.folders:
        card = card_of(folder, given.examples)
        path = given.out / f"{folder.resolve().name}.md"
        path.write_text(markdown(card), encoding="utf-8")
        path.with_suffix(".html").write_text(page(card), encoding="utf-8")
        print(f"{path}: {card.rows} rows")
    return 0
