"""Selectors that measure: the paper's example of each, worked by hand."""

import json
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from posttrain.errors import DataError
from posttrain.plugins import Plugin, build
from posttrain.records import Demonstration, Preference, Prompt, Record
from posttrain.select.measures import Measures
from posttrain.select.selectors import SELECTORS
from posttrain.select.selectors.k_center import hashed, spread
from posttrain.select.selectors.rank_consistency import ndcg
from posttrain.select.selectors.step_filter import step_filter, steps_of
from posttrain.select.selectors.weak_to_strong import (
    nearest,
    p_ik,
    route,
    smoothed,
    smoothed_labels,
)
from posttrain.select.stage import SelectConfig

Make = Callable[..., Measures]


def prompts(*ids: str, task: str = "arithmetic", answer: str = "1") -> list[Prompt]:
    return [Prompt(id=i, text=f"? {i}", answer=answer, task=task, source="s") for i in ids]


def pairs(*ids: str) -> list[Preference]:
    return [
        Preference(id=i, prompt_id=i, prompt="?", chosen="a", rejected="b", source="s") for i in ids
    ]


def demonstration(i: str, response: str, prompt_id: str = "p") -> Demonstration:
    return Demonstration(
        id=i, prompt_id=prompt_id, prompt="?", response=response, reward=1.0, source="s"
    )


def ids(name: str, rows: Sequence[Record], measures: Measures, **options: object) -> list[str]:
    select = build(SELECTORS, Plugin(name=name, options=options), "select.selectors")
    return [str(getattr(row, "id", "")) for row in select(rows, random.Random(0), measures)]


def of_eight(right: int) -> list[float]:
    return [1.0] * right + [0.0] * (8 - right)


def test_pass_rate_band_keeps_what_is_solved_sometimes(rolled: Make) -> None:
    rows = prompts("a", "b", "c", "d")
    measures = rolled(
        rows, {"a": of_eight(0), "b": of_eight(1), "c": of_eight(7), "d": of_eight(8)}
    )
    assert ids("pass_rate_band", rows, measures) == ["b", "c"]


def test_learnability_is_the_funnel_of_stagent(rolled: Make) -> None:
    """2, 4, 5, 6 and 8 right of 8: .0469, .125, .1465, .1406, 0."""
    rows = prompts("a", "b", "c", "d", "e", "f")
    right = dict(zip("abcdef", (2, 4, 5, 6, 8, 0), strict=True))
    measures = rolled(rows, {i: of_eight(n) for i, n in right.items()})
    assert ids("learnability", rows, measures, n=3) == ["c", "d", "b"]
    scores = {row.id: row.measures["learnability"] for row in measures.noted()}
    expected = {"a": 0.046875, "b": 0.125, "c": 0.146484, "d": 0.140625, "e": 0.0, "f": 0.0}
    assert scores == pytest.approx(expected)
    buckets = [ids("learnability", rows, measures, keep=[b]) for b in ("trivial", "noise")]
    assert buckets == [["e"], ["f"]]
    assert ids("learnability", rows, measures, n=1, score="variance") == ["b"]


def test_drive_keeps_the_hardest_and_spreads_evenly(rolled: Make) -> None:
    rates = {"a": 9, "b": 1, "c": 5, "d": 0, "e": 3}
    rows = prompts(*rates)
    measures = rolled(rows, {i: [1.0] * n + [0.0] * (10 - n) for i, n in rates.items()})
    assert ids("drive", rows, measures, phase="hard", n=3) == ["d", "b", "e"]
    assert ids("drive", rows, measures, phase="hard", n=2) == ["d", "b"]


def test_drive_spreads_over_pass_rates(rolled: Make) -> None:
    rows = prompts("a", "b", "c", "d")
    measures = rolled(rows, {"a": [1], "b": [1], "c": [1], "d": [0]})
    assert "d" in ids("drive", rows, measures, phase="uniform", n=2)


def test_entropy_band_drops_what_the_policy_is_sure_of(rolled: Make) -> None:
    """4 tokens a rollout, -log p of 0, 4, 8, 12 and 16: entropies 0, 1, 2, 3, 4, limit .8."""
    rows = prompts("a", "b", "c", "d", "e")
    logps = dict(zip("abcde", (0.0, -4.0, -8.0, -12.0, -16.0), strict=True))
    measures = rolled(rows, {i: [1.0, 0.0] for i in "abcde"}, logps=logps)
    assert ids("entropy_band", rows, measures) == ["b", "c", "d", "e"]
    assert ids("entropy_band", rows, measures, high=0.8) == ["b", "c", "d"]


def test_perplexity_band_keeps_the_middle(told: Make) -> None:
    """ppl .01, .4, .5, .6, 3: the quantiles .2 and .8 are .322 and 1.08."""
    rows = [demonstration(i, "x") for i in "abcde"]
    measures = told("mean_logp", rows, [-0.01, -0.4, -0.5, -0.6, -3.0])
    assert ids("perplexity_band", rows, measures) == ["b", "c", "d"]


def test_margin_band_leaves_out_wrong_labels_and_what_has_no_score(told: Make) -> None:
    rows = pairs("a", "b", "c", "d")
    measures = told("margin", rows, [-3.0, -1.0, 3.0, math.nan])
    assert ids("margin_band", rows, measures) == ["b", "c"]
    assert [row.id for row in measures.noted() if row.measures] == ["a", "b", "c"]


def test_seed_agreement_keeps_what_the_judge_is_in_two_minds_about(told: Make) -> None:
    """A margin of 0 is kept with the chance 1 - 2 / 2^4 = .875, one of 50 never."""
    rows = pairs(*(f"{i:03}" for i in range(400)))
    measures = told("margin", rows, [0.0] * 200 + [50.0] * 100 + [-50.0] * 99 + [math.nan])
    kept = ids("seed_agreement", rows, measures)
    assert all(i < "200" for i in kept)
    assert 0.80 < len(kept) / 200 < 0.95
    assert ids("seed_agreement", rows, measures) == kept


def test_rank_consistency_compares_lists_with_labels(rolled: Make) -> None:
    """Relevant 1, list 2, 1, 3: NDCG@10 = 1 / log2(3) = .6309."""
    assert ndcg(["2", "1", "3"], {"1"}) == pytest.approx(0.6309, abs=1e-4)
    assert ndcg(["1", "2"], {"1", "2"}) == 1
    assert ndcg(["1"], set()) == 0
    rows = prompts("a", "b")
    told = {"a": ["#### 2, 1, 3", "#### 2,2,1"], "b": ["#### 2, 3", "no list"]}
    measures = rolled(rows, {"a": [0, 0], "b": [0, 0]}, told)
    assert ids("rank_consistency", rows, measures) == ["a"]
    assert [row.measures["ndcg"] for row in measures.noted()] == [0.63093, 0.0]


def test_perspectives_are_never_the_same_twice(unmeasured: Measures) -> None:
    rows = [
        demonstration("a", "add three and four"),
        demonstration("b", "Add three, and four!"),
        demonstration("c", "count up from three"),
        demonstration("d", "seven minus nothing"),
        demonstration("e", "only one", prompt_id="q"),
    ]
    assert ids("perspectives", rows, unmeasured) == ["a", "d"]
    assert ids("perspectives", rows, unmeasured, n=3) == ["a", "c", "d"]
    assert ids("perspectives", rows, unmeasured, n=4) == []


def test_steps_have_all_earlier_steps_for_context() -> None:
    steps = list(steps_of(demonstration("a", "one\n\ntwo\nthree\n")))
    assert [step.response for step in steps] == ["one", "two", "three"]
    assert [step.prompt for step in steps] == ["?", "?\none", "?\none\ntwo"]
    assert len({step.id for step in steps}) == 3


def test_step_filter_takes_grades_above_five(told: Make) -> None:
    """Grades 8, 5, 6, 2 and one that is unparsable: steps 0 and 2."""
    row = demonstration("a", "s0\ns1\ns2\ns3\ns4")
    logits = [math.log(grade / (10 - grade)) for grade in (8.0, 5.0, 6.0, 2.0)]
    measures = told("score", list(steps_of(row)), [*logits, math.nan])
    found = list(step_filter([row], random.Random(), measures))
    assert [getattr(step, "response", "") for step in found] == ["s0", "s2"]
    grades = [row.measures.get("step_grade") for row in measures.noted()]
    assert grades == pytest.approx([8, 5, 6, 2, None])


def test_k_center_takes_the_farthest_next() -> None:
    """On a line at 0, 1, 4, 10 from 0: 10, then 4 (4 from 0), then 1."""
    line = np.array([[0.0], [1.0], [4.0], [10.0]], dtype=np.float32)
    assert spread(line, 4, 0) == ([0, 3, 2, 1], [0.0, 10.0, 4.0, 1.0])
    same = hashed(["Two words.", "two WORDS"])
    assert np.allclose(same[0], same[1])
    assert float(np.linalg.norm(same[0])) == pytest.approx(1)


def test_k_center_takes_repeats_last(unmeasured: Measures) -> None:
    rows = [demonstration(str(at), text) for at, text in enumerate(["x y", "X, y", "z w", "q r"])]
    for seed in range(4):
        select = build(SELECTORS, Plugin(name="k_center", options={"n": 3}), "select.selectors")
        texts = [
            getattr(row, "response", "") for row in select(rows, random.Random(seed), unmeasured)
        ]
        assert {text.lower().replace(",", "") for text in texts} == {"x y", "z w", "q r"}


def test_labels_are_smoothed_over_neighbours() -> None:
    """A path of three, Y = (1, 0, 1), a = .5: F = (2/3, .4714, 2/3)."""
    path = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    found = smoothed(path, np.array([[1.0], [0.0], [1.0]]), 0.5)[:, 0]
    assert found == pytest.approx([2 / 3, math.sqrt(2) / 3, 2 / 3], abs=1e-4)
    alone = smoothed(np.zeros((1, 1)), np.array([[0.0, 1.0]]), 0.5)
    assert alone[0] == pytest.approx([0, 0.5])


def test_a_lone_label_gives_way_to_its_neighbours() -> None:
    """Three alike rows, two with x: F of the third is larger for x. A far row keeps its own."""
    states = np.array([[1, 0], [1, 0], [1, 0], [0, 1]], dtype=np.float32)
    assert smoothed_labels(["x", "x", "y", "y"], states, 2, 0.9) == ["x", "x", "x", "y"]
    assert smoothed_labels(["x", "x", "y", "y"], states, 2, 0.1) == ["x", "x", "y", "y"]
    assert smoothed_labels([], states[:0], 2, 0.5) == []


def test_neighbours_are_mutual() -> None:
    states = np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]], dtype=np.float32)
    assert nearest(states, 1) == pytest.approx(
        np.array([[0.0, 0.8, 0.0], [0.8, 0.0, 0.6], [0.0, 0.6, 0.0]])
    )


def test_the_router_takes_its_own_label_where_it_knows(rolled: Make) -> None:
    """P(IK) .9 and .4 at a threshold of .5: self, weak."""
    rows = prompts("a", "b", answer="7")
    answers = {"a": ["8", "8", "7"], "b": ["8", "8", "8"]}
    measures = rolled(rows, {"a": [0, 0, 1], "b": [0, 0, 0]}, answers)
    known = np.array([0.9, 0.4])
    found = route(measures, rows, known >= 0.5, known, ["7", "7"])
    assert [(r.answer, r.source) for r in found if isinstance(r, Prompt)] == [
        ("8", "s/self"),
        ("7", "s/weak"),
    ]


def test_p_ik_learns_which_questions_are_known() -> None:
    """Known where the first coordinate is positive: told apart on points never seen."""
    rng = np.random.default_rng(0)
    states = rng.normal(size=(60, 4)).astype(np.float32)
    known = (states[:, 0] > 0).astype(float)
    asked = np.array([[2, 0, 0, 0], [-2, 0, 0, 0]], dtype=np.float32)
    high, low = p_ik(states, known, asked)
    assert high > 0.9
    assert low < 0.1


def test_weak_to_strong_needs_gold_answers(rolled: Make, tiny_policy: Path, tmp_path: Path) -> None:
    rows = prompts("a", "b")
    rolled(rows, {"a": [1.0], "b": [0.0]})
    measures = Measures(SelectConfig(), tmp_path, policy=tiny_policy)
    with pytest.raises(DataError, match="no gold answers"):
        ids("weak_to_strong", rows, measures, gold=["chess"])


def test_no_model_is_loaded_to_see_what_is_lacking(tmp_path: Path) -> None:
    """The policy's folder holds no model: asked about no rows, no selector opens it."""
    measures = Measures(SelectConfig(), tmp_path, policy=tmp_path, judge=tmp_path)
    for name, more in (("k_center", {"n": 1, "space": "policy"}), ("weak_to_strong", {"gold": []})):
        assert ids(name, [], measures, **more) == []
    assert ids("seed_agreement", [], measures) == ids("step_filter", [], measures) == []


def test_measurements_outlive_a_kill(told: Make, tmp_path: Path) -> None:
    """What lies in scratch is read; the policy, a folder without a model, is never opened."""
    rows = [demonstration(i, "x") for i in "ab"]
    measures = told("mean_logp", rows, [-1.0, -2.0])
    assert measures.logps(rows) == [-1.0, -2.0]
    assert json.loads((tmp_path / "mean_logp-000000.json").read_text()) == [-1.0, -2.0]
    with pytest.raises(DataError, match="not a policy folder"):
        measures.logps([demonstration("c", "x")])
