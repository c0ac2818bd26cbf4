"""Cards: their numbers are those of another count, and no row's text becomes markup."""

import json
import re
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from statistics import fmean

import pytest

from posttrain.artifacts import Manifest, write_json, write_rows
from posttrain.cli import main
from posttrain.errors import DataError
from posttrain.records import Preference, RawRow
from posttrain.select.card import card_of
from posttrain.select.card_page import cell, markdown, page
from posttrain.select.licences import licence_of
from posttrain.select.measures import Measured

Seal = Callable[..., Manifest]

HOSTILE = "</pre><script>alert(1)</script> | `x` \u202eevil\x1b[2J\n# no heading"


def pair(n: int, source: str, chosen: str = "yes") -> Preference:
    return Preference(
        id=str(n),
        prompt_id=str(n),
        prompt="?" * (n + 1),
        chosen=chosen,
        rejected="no",
        source=source,
        difficulty=n % 3 or None,
    )


@pytest.fixture
def folder(tmp_path: Path, seal: Seal) -> Path:
    sources = ["pandalm", "procedural/arithmetic+wrong_answer", "my_own", "pandalm"]
    rows = [pair(n, sources[n % 4], HOSTILE if n == 0 else "yes") for n in range(40)]
    write_rows(tmp_path / "set", rows)
    measured = [Measured(id=str(n), measures={"margin": n / 8}) for n in range(80)]
    write_rows(tmp_path / "set", measured, "measures.jsonl")
    report = {"rows_read": 50, "left": {"1 margin_band": 44, "2 first": 40}}
    seal(tmp_path / "set", "Preference", report=report)
    return tmp_path / "set"


class Tables(HTMLParser):
    """The cells of a page's tables, and every tag in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: list[list[str]] = []
        self.tags: Counter[str] = Counter()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags[tag] += 1
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.cells and self.cells[-1]:
            self.cells[-1][-1] += data


def test_the_numbers_are_those_of_a_recount(folder: Path) -> None:
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    sources = Counter(row["source"].split("+")[0] for row in rows)
    bands = Counter(str(row.get("difficulty", "unknown")) for row in rows)
    lengths = [len(row["prompt"]) for row in rows]
    text = markdown(card_of(folder))
    for name, n in (sources + bands).items():
        assert re.search(rf"^\| {re.escape(cell(name))} \| {n} \|", text, re.MULTILINE), name
    assert f"| prompt | 40 | {fmean(lengths):.6g} | 1 | 4.9 | 20.5 | 36.1 | 40 |" in text
    assert "| margin | 40 | 2.4375 | 0 |" in text  # of the 40 rows that were chosen, not of all 80
    assert "| left after 1 margin\\_band | 44 |" in text
    in_page = Tables(page(card_of(folder))).cells
    assert ["pandalm", "20", *licence_of("pandalm")[:2], ""] in in_page
    assert ["rows read", "50", ""] in in_page


def test_the_text_of_rows_is_never_markup(folder: Path) -> None:
    card = card_of(folder)
    assert card.examples[0]["chosen"] == HOSTILE
    assert Tables(page(card)).tags["script"] == 0
    lines = markdown(card).splitlines()
    assert "    # no heading" in lines
    assert not [line for line in lines if "script" in line and not line.startswith("    ")]
    for text in (markdown(card), page(card)):
        assert "\u202e" not in text
        assert "\x1b" not in text
    assert cell("a|b\n# c") == "a\\|b # c"


def test_offensive_sources_are_told_and_not_shown(tmp_path: Path, seal: Seal) -> None:
    rows = [pair(0, "hh_rlhf_harmless", "SLUR"), pair(1, "pandalm"), pair(2, "elsewhere/x")]
    write_rows(tmp_path / "set", rows)
    seal(tmp_path / "set", "Preference")
    text = markdown(card_of(tmp_path / "set"))
    assert "hh\\_rlhf\\_harmless holds red-team text" in text
    assert "SLUR" not in text
    assert "Licence unknown: elsewhere/x." in text


def test_licences_are_found_by_the_source() -> None:
    assert licence_of("mawps/addsub").name == "MIT"
    assert licence_of("procedural/arithmetic+near_duplicate").home.startswith("generated")
    assert licence_of("hub/some/set").home == "unknown"


def test_the_verb_writes_both_forms(folder: Path, tmp_path: Path) -> None:
    assert main(["card", str(folder), "--out", str(tmp_path / "cards")]) == 0
    assert {path.name for path in (tmp_path / "cards").iterdir()} == {"set.md", "set.html"}
    before = (tmp_path / "cards/set.md").read_bytes()
    assert main(["card", str(folder), "--out", str(tmp_path / "cards")]) == 0
    assert (tmp_path / "cards/set.md").read_bytes() == before
    (folder / "rows.jsonl").write_text("")
    assert main(["card", str(folder), "--out", str(tmp_path / "cards")]) == 3


def test_any_dataset_has_a_card(tmp_path: Path, seal: Seal) -> None:
    write_rows(
        tmp_path / "raw", [RawRow.of(source="gsm8k", task="gsm8k", prompt="1+1", answer="2")]
    )
    seal(tmp_path / "raw", "RawRow")
    assert card_of(tmp_path / "raw").spreads["answer"].median == 1
    write_rows(tmp_path / "empty", [])
    seal(tmp_path / "empty", "Prompt")
    assert "| rows | 0 |" in markdown(card_of(tmp_path / "empty"))
    write_json(tmp_path / "model/config.json", {})
    seal(tmp_path / "model", "policy")
    with pytest.raises(DataError, match="no record of rows"):
        card_of(tmp_path / "model")
