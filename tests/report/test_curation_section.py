"""The page tells what curation did: by filter over all shards, to lengths, against suites."""

import re
from typing import Any

from tests.report.conftest import curation

from posttrain.report.sections.curation import filters, length, suites


def cells(page: object) -> list[str]:
    return [each for each in re.sub(r"<[^>]*>", "|", str(page)).split("|") if each.strip()]


def test_the_flow_of_a_filter_is_summed_over_shards() -> None:
    found = cells(filters(curation()))
    # 40 of 5,000 is 0.8%, one of 3,000 is less.
    assert found[0] == "filter, over 2 shards"
    assert found[-5:] == ["schema", "8\u202f000", "7\u202f959", "41", "0.8%"]
    assert filters({"shards": []}) is None


def test_lengths_of_pairs_are_told() -> None:
    page = str(length(curation()))
    assert "52.5%" in page
    assert "by \u22123 characters" in page
    assert length({"length_bias": None}) is None


def test_suites_are_told_with_those_that_are_absent() -> None:
    page = str(suites(curation()))
    assert cells(page)[-5:-1] == ["svamp", "1\u202f000", "6", "cdcdcdcdcdcd"]
    assert "could not be had: livebench" in page
    nothing: dict[str, Any] = {"suites": {}}
    assert "against no suite" in str(suites(nothing))
