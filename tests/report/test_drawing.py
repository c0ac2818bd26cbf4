"""Positions, ticks, escaping and number formats: what the drawings rest on."""

import math
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.records import Sample
from posttrain.report.charts import Bin, reliability, small_curve
from posttrain.report.compare import examples_of, kind_of, ladder_of, widest
from posttrain.report.dag import Box, Trunk, drawing, routes, wrapped
from posttrain.report.layout import crossings, ordered, spread, ticks
from posttrain.report.markup import Html, duration, el, join, percent, points, short

numbers = st.floats(-1e3, 1e3)


@given(st.lists(st.tuples(numbers, st.floats(0, 50), st.floats(0.5, 9)), min_size=1, max_size=12))
def test_spread_keeps_order_and_distances(rows: list[tuple[float, float, float]]) -> None:
    wished, gaps, weights = zip(*rows, strict=True)
    placed = spread(wished, gaps, weights)
    for i in range(len(placed) - 1):
        assert placed[i + 1] - placed[i] >= gaps[i] - 1e-6


def test_spread_moves_no_more_than_it_must() -> None:
    assert spread([0, 10, 30], [5, 5]) == [0, 10, 30]
    assert spread([10, 10], [4]) == [8, 12]
    assert spread([10, 10], [4], [3, 1]) == [9, 13]


@given(numbers, st.floats(1e-6, 1e6))
def test_ticks_lie_inside_and_are_few(low: float, width: float) -> None:
    found = ticks(low, low + width)
    slack = 1e-6 + 1e-9 * (abs(low) + width)
    assert all(low - slack <= tick <= low + width + slack for tick in found)
    assert len(found) <= 10
    assert found == sorted(found)


def test_layers_are_ordered_to_cross_less() -> None:
    links = {"a": ["d"], "b": ["c"], "c": ["b"], "d": ["a"]}
    layers = [["a", "b"], ["c", "d"]]
    assert crossings(layers, links) == 1
    assert crossings(ordered(layers, links), links) == 0


def test_a_long_edge_takes_a_lane_through_each_layer() -> None:
    depth = {"a": 0, "b": 1, "c": 3}
    edges, lanes = routes([Trunk("a", "s1", ("b", "c"))], depth)
    assert [lane.layer for lane in lanes] == [1, 2]
    assert len(edges) == 4


def test_boxes_do_not_overlap() -> None:
    names = [f"task_{i}" for i in range(9)]
    depth = {name: i % 3 for i, name in enumerate(names)}
    trunks = [Trunk("task_0", "s1", tuple(n for n in names if depth[n]))]
    svg = ET.fromstring(drawing([Box(n, ["1.0 s"], "s1") for n in names], trunks, depth))
    boxes = [
        tuple(float(rect.attrib[k]) for k in ("x", "y", "width", "height"))
        for rect in svg.iter("rect")
        if rect.get("class") == "box"
    ]
    assert len(boxes) == 9
    for i, (x, y, w, h) in enumerate(boxes):
        for u, v, _, _ in boxes[:i]:
            assert abs(x - u) >= w or abs(y - v) >= h


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("rl", ["rl"]),
        ("benchmark_rejected_sft", ["benchmark_", "rejected_sft"]),
        ("x" * 40, ["x" * 14 + "…"]),
    ],
)
def test_names_are_wrapped_after_underscores(name: str, shown: list[str]) -> None:
    assert wrapped(name) == shown


@given(st.text())
def test_no_text_can_leave_its_element(text: str) -> None:
    made = el("p", text, title=text)
    assert ET.fromstring(made).tag == "p"
    assert isinstance(join(made, text), Html)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (percent(0.1234), "12.3%"),
        (percent(math.nan), "NaN"),
        (percent(None), "n/a"),
        (points(-0.05), "\u22125.0"),
        (short(12345), "12\u202f345"),
        (short({"a": [1, None], "b": True}), "a 1, none, b yes"),
        (duration(59.96), "60.0 s"),
        (duration(3725), "62 min 05 s"),
        (duration(8000), "2 h 13 min"),
        (duration(None), "n/a"),
    ],
)
def test_number_formats(made: str, expected: str) -> None:
    assert made == expected


def test_curves_may_hold_gaps_one_point_or_none() -> None:
    drawn = {(1.0, None, 2.0): (2, 0), (5.0,): (1, 0), (None,): (0, 0), (3.0, 3.0): (0, 1)}
    for values, marks in drawn.items():
        curve = small_curve("k", "t", list(range(len(values))), list(values))
        ET.fromstring(curve)
        assert (curve.count("<circle"), curve.count("<path")) == marks


def test_reliability_may_lie_below_one_half() -> None:
    chart = reliability("k", "t", [Bin(0.3, 0.2, 5), Bin(0.9, 0.1, 0)], "pairs")
    ET.fromstring(chart)
    assert "nan" not in chart.lower()


def sample(item: str, index: int, correct: float) -> Sample:
    return Sample(
        suite="s", item_id=item, index=index, prompt="p", answer="a", response="r",
        correct=correct, tokens=1, truncated=False,
    )  # fmt: skip


def test_the_ladder_counts_items_not_samples() -> None:
    rows = [sample("a", 0, 1), sample("a", 1, 0), sample("b", 0, 1), sample("b", 1, 1)]
    found = ladder_of({"sft": rows}, [], "s")["sft"]
    assert (found.value, found.n) == (0.75, 2)
    assert widest({"sft": rows}) == "s"


def test_examples_show_gains_first_and_then_losses() -> None:
    before = [sample(f"i{i}", 0, i % 2) for i in range(8)]
    after = [sample(f"i{i}", 0, (i // 2) % 2) for i in range(8)]
    found = examples_of({"rl": after, "rejected_sft": before}, "s", 8)
    assert [e.why for e in found][:3] == ["Right with rl, wrong with rejected_sft"] * 2 + [
        "Wrong with rl, right with rejected_sft"
    ]
    assert [a.policy for a in found[0].answers] == ["rejected_sft", "rl"]
    assert kind_of([True]) == "kept"
