"""Panel sets: readers of upstream's files, and measures against numbers worked out apart."""

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from posttrain.artifacts import write_rows
from posttrain.errors import ConfigError, DataError
from posttrain.journal import Journal
from posttrain.plugins import Plugin
from posttrain.records import Preference, content_id
from posttrain.reward_model.agreement import cohen_kappa, fleiss_kappa, majority
from posttrain.reward_model.panel_sets import PANEL_SETS, read_sets
from posttrain.reward_model.panel_sets.items import Pair, Ranking
from posttrain.reward_model.panel_sets.measures import (
    Verdict,
    human_agreement,
    pair_accuracy,
)
from posttrain.reward_model.panel_sets.reward_bench import (
    best_of_four,
    leads,
    relative,
    sections,
    spread,
    ties_score,
)
from posttrain.reward_model.panel_sets.rm_bench import style_matrix
from posttrain.reward_model.stage import RewardModelConfig, preflight, run, still_holds

DATA = Path(
    os.environ.get("POSTTRAIN_DATA") or Path(__file__).parents[2].resolve() / "../shared/data"
)
with_data = pytest.mark.skipif(not DATA.is_dir(), reason="POSTTRAIN_DATA names no folder")


class ByLength:
    """Scores the characters of a response."""

    def score(self, prompts: Sequence[str], responses: Sequence[str]) -> list[float]:
        return [float(len(response)) for response in responses]


class ByLengthInPairs:
    """Compares characters, and lets the first place have a start."""

    def __init__(self, start: float = 0.0) -> None:
        self.start = start

    def compare(
        self, prompts: Sequence[str], firsts: Sequence[str], seconds: Sequence[str]
    ) -> list[float]:
        return [len(a) - len(b) + self.start for a, b in zip(firsts, seconds, strict=True)]


def upstream(name: str) -> list[dict[str, Any]]:
    text = (DATA / name).read_text(encoding="utf-8")
    if name.endswith(".json"):
        rows: list[dict[str, Any]] = json.loads(text)
        return rows
    return [json.loads(line) for line in text.splitlines()]


def longer(first: str, second: str) -> int:
    return 0 if len(first) == len(second) else 1 if len(first) > len(second) else 2


@pytest.mark.realdata
@with_data
def test_judgebench_as_upstream_has_it() -> None:
    files = ("judgebench/judgebench_gpt4o.jsonl", "judgebench/judgebench_claude35.jsonl")
    rows = [row for file in files for row in upstream(file)]
    right = [
        longer(r["response_A"], r["response_B"]) == {"A>B": 1, "B>A": 2}[r["label"]] for r in rows
    ]
    found = PANEL_SETS["judgebench"](str(DATA)).examine(ByLength())
    assert found.items == len(rows) == 79
    assert found.scores["accuracy"] == pytest.approx(sum(right) / 79)
    # mmlu-pro-math counts as knowledge.
    assert found.slices["math"].pairs == sum(r["source"] == "livebench-math" for r in rows)
    assert sum(part.pairs for part in found.slices.values()) == 79


@pytest.mark.realdata
@with_data
def test_llmbar_as_upstream_has_it() -> None:
    rows = upstream("llmbar/natural.json")
    right = [longer(r["output_1"], r["output_2"]) == r["label"] for r in rows]
    found = PANEL_SETS["llmbar"](str(DATA)).examine(ByLength())
    assert found.items == 100
    assert found.scores == {
        "accuracy": pytest.approx(sum(right) / 100),
        "mean_of_orders": pytest.approx(sum(right) / 100),
    }
    paired = PANEL_SETS["llmbar"](str(DATA)).examine(ByLengthInPairs(start=1e9))
    assert paired.scores["accuracy"] == 0
    assert paired.scores["mean_of_orders"] == 0.5
    assert paired.scores["agreement"] == 0
    assert paired.scores["first_wins"] == 1


@pytest.mark.realdata
@with_data
def test_pandalm_as_upstream_has_it() -> None:
    from sklearn.metrics import cohen_kappa_score

    rows = upstream("pandalm/testset-v1.json")
    votes = [[r[f"annotator{n}"] for n in (1, 2, 3)] for r in rows]
    told = [
        (longer(str(r["response1"]), str(r["response2"])), Counter(v).most_common(1)[0][0], v)
        for r, v in zip(rows, votes, strict=True)
        if Counter(v).most_common(1)[0][1] >= 2
    ]
    words, people = [word for word, _, _ in told], [person for _, person, _ in told]
    found = PANEL_SETS["pandalm"](str(DATA)).examine(ByLength())
    assert (found.items, found.skipped) == (len(told), 696 - len(told))
    same = [w == p for w, p in zip(words, people, strict=True)]
    assert found.scores["agreement_with_majority"] == pytest.approx(sum(same) / len(same))
    assert found.scores["kappa"] == pytest.approx(cohen_kappa_score(words, people))
    each = [[v[n] for _, _, v in told] for n in range(3)]
    human = [cohen_kappa_score(each[a], each[b]) for a, b in ((0, 1), (0, 2), (1, 2))]
    assert found.scores["human_kappa"] == pytest.approx(sum(human) / 3)
    mine = [cohen_kappa_score(words, one) for one in each]
    assert found.scores["annotator_kappa"] == pytest.approx(sum(mine) / 3)
    decided = [w == p for w, p in zip(words, people, strict=True) if p]
    assert found.scores["accuracy_without_ties"] == pytest.approx(sum(decided) / len(decided))


@pytest.mark.realdata
@with_data
def test_hh_rlhf_as_upstream_has_it() -> None:
    rows = upstream("hh_rlhf_harmless/test.jsonl")
    right = total = 0
    for row in rows:
        chosen, rejected = row["chosen"], row["rejected"]
        common = len(os.path.commonprefix([chosen, rejected]))  # noqa: RUF071 - texts, not paths
        turn = chosen.rfind("\n\nAssistant:", 0, common)
        if turn >= 0:
            start = turn + len("\n\nAssistant:")
            total += 1
            right += len(chosen[start:].strip()) > len(rejected[start:].strip())
    found = PANEL_SETS["hh_rlhf"](str(DATA)).examine(ByLength())
    assert (found.items, found.skipped) == (total, len(rows) - total)
    assert found.scores["accuracy"] == pytest.approx(right / total)


@pytest.mark.realdata
@with_data
def test_rm_bench_as_upstream_has_it() -> None:
    import numpy as np

    files = {
        "chat": ["chat_filtered"],
        "code": ["code_filtered"],
        "safety": ["safety-refuse_filtered", "safety-response_filtered"],
    }
    cells = {}
    for domain, names in files.items():
        rows = [row for name in names for row in upstream(f"rm_bench/{name}.json")]
        lengths = np.array([[[len(t) for t in row[side]] for side in ("chosen", "rejected")]
                            for row in rows])  # fmt: skip
        cells[domain] = (lengths[:, 0, :, None] > lengths[:, 1, None, :]).mean(0)
    found = PANEL_SETS["rm_bench"](str(DATA), domains=("chat", "code", "safety")).examine(
        ByLength()
    )
    assert found.items == 28 + 36 + 53 + 18
    upper, lower = np.triu_indices(3, 1), np.tril_indices(3, -1)
    hard = np.mean([c[upper].mean() for c in cells.values()])
    easy = np.mean([c[lower].mean() for c in cells.values()])
    assert found.scores["hard"] == pytest.approx(hard)
    assert found.scores["easy"] == pytest.approx(easy)
    assert found.scores["normal"] == pytest.approx(np.mean([c.diagonal() for c in cells.values()]))
    assert found.scores["total"] == pytest.approx(np.mean([c.mean() for c in cells.values()]))
    assert np.allclose(found.matrix, np.mean(list(cells.values()), axis=0))
    # The longer response is in general the one in more style: length is all that counts here.
    assert easy > 0.6 > 0.4 > hard


@pytest.mark.realdata
@with_data
def test_a_pairwise_judge_gets_what_its_pointwise_twin_gets() -> None:
    for name, options in {
        "rm_bench": {"domains": ("chat",)},
        "pandalm": {"limit": 100},
        "judgebench": {"limit": 30},
    }.items():
        one = PANEL_SETS[name](str(DATA), **options)
        alone, paired = one.examine(ByLength()), one.examine(ByLengthInPairs())
        assert alone.scores.items() <= paired.scores.items()
        assert alone.slices == paired.slices


def test_style_matrix_by_hand() -> None:
    # The right response of style i has 4, 5, 6 letters, the wrong one of style j 3, 5, 7.
    item = Ranking("p", ("a" * 4, "a" * 5, "a" * 6), ("b" * 3, "b" * 5, "b" * 7), "chat")
    other = Ranking("q", ("a" * 9,) * 3, ("b",) * 3, "code")
    found = style_matrix(ByLength(), [item, other])
    # A tie, 5 against 5, is lost.
    assert found.scores["chat easy"] == pytest.approx(1.0)
    assert found.scores["chat normal"] == pytest.approx(1 / 3)
    assert found.scores["chat hard"] == 0.0
    assert found.scores["total"] == pytest.approx((4 / 9 + 1) / 2)
    assert found.matrix == [[1.0, 0.5, 0.5], [1.0, 0.5, 0.5], [1.0, 1.0, 0.5]]


def test_kappas_by_hand() -> None:
    # agree on 3 of 4; chance: (2*1 + 2*3) / 16
    assert cohen_kappa([1, 1, 2, 2], [1, 2, 2, 2]) == pytest.approx((0.75 - 0.5) / 0.5)
    assert cohen_kappa([1, 1], [1, 1]) == 0.0
    # items: 3-0 and 2-1: agreement 1 and 1/3; pooled shares 5/6 and 1/6
    expected = (2 / 3 - (25 + 1) / 36) / (1 - 26 / 36)
    assert fleiss_kappa([[1, 1, 1], [1, 1, 2]]) == pytest.approx(expected)
    assert majority([1, 1, 0]) == 1
    assert majority([0, 1, 2]) is None
    with pytest.raises(ValueError, match="same number"):
        fleiss_kappa([[1], [1, 2]])


def test_people_judge_and_tie() -> None:
    pairs = [
        Pair("p", "aaa", "b", 1, "x", (1, 1, 2)),
        Pair("p", "a", "b", 0, "x", (0, 0, 0)),
        Pair("p", "a", "bbb", 1, "y", (1, 1, 1)),
        Pair("p", "a", "bbb", 2, "y", (2, 2, 2)),
    ]
    found = human_agreement(ByLength(), pairs)
    assert found.scores["agreement_with_majority"] == 0.75
    assert found.scores["accuracy_without_ties"] == pytest.approx(2 / 3)
    assert found.scores["ties"] == found.scores["human_ties"] == 0.25
    assert found.slices["unanimous"].accuracy == pytest.approx(2 / 3)
    assert found.slices["y"].pairs == 2


def test_a_contradiction_is_a_tie_and_no_answer_is_lost() -> None:
    assert [Verdict(1, -1).word, Verdict(1, 0).word, Verdict(-1, -2).word] == [0, 1, 2]
    assert not Verdict(1, -1).on_balance(1)
    assert Verdict(0, -1).on_balance(2)

    class Silent:
        def score(self, prompts: Sequence[str], responses: Sequence[str]) -> list[float]:
            return [float("nan")] * len(prompts)

    found = pair_accuracy(Silent(), [Pair("p", "a", "b", 1, "x")])
    assert (found.unscored, found.scores["accuracy"]) == (1, 0.0)


def test_reward_bench_sections_weigh_their_subsets() -> None:
    items = [
        Ranking("p", ("aa",), ("b",), "alpacaeval-easy"),
        Ranking("p", ("a",), ("bb",), "mt-bench-easy"),
        Ranking("p", ("a",), ("b",), "hep-cpp"),
    ]
    found = sections(ByLength(), items)
    chat = 100 / (100 + 28)
    assert found.scores == pytest.approx({"Chat": chat, "Reasoning": 0.0, "score": chat / 2})


def test_best_of_four_and_ties_by_hand() -> None:
    assert [leads([1, 2, 3]), leads([0, 1, 0]), leads([1, -1, 2])] == [1.0, pytest.approx(1 / 3), 0]
    assert leads([float("nan"), 1]) == 0.0
    items = [
        Ranking("p", ("aaa",), ("b", "bb", "bbb"), "Math"),
        Ranking("r", ("aaaaa",), ("b",), "Ties", "ref:0"),
        Ranking("t", ("aaaa", "aaaaa"), ("b", "bb"), "Ties", "tied:0"),
    ]
    found = best_of_four(ByLength(), items)
    # ref gap 4; tied gap 2 over a spread of 1: everything right, tanh(2 / 1 - 1)
    ties = 0.3 + 0.3 + 0.2 + 0.2 + 0.01 * 0.7615942
    assert found.scores["Ties"] == pytest.approx(ties)
    assert found.scores["score"] == pytest.approx((ties + 0.5) / 2)
    # spread 3, gap 2, ref gap 1: all accurate, neither preferred; tanh(1 / 3 - 1)
    known = {"ref:0": spread([3.0], [2.0]), "tied:0": spread([4.0, 7.0], [2.0])}
    assert ties_score(known) == pytest.approx(0.6 + 0.01 * -0.5827830)
    assert [relative(0, 0), relative(2, 0), relative(float("nan"), 1)] == [0.0, 1.0, 0.0]


def test_reward_bench_reads_upstreams_rows(tmp_path: Path) -> None:
    v1 = {"prompt": "p", "chosen": "aa", "rejected": "b", "subset": "hep-go", "id": 1}
    v2 = [
        {"id": "7", "prompt": "p", "chosen": ["aa"], "rejected": ["b", "c", "d"], "subset": "Math"},
        {"id": "ref:0", "prompt": "r", "chosen": ["aa"], "rejected": ["b"], "subset": "Ties"},
    ]
    for name, rows in {"reward_bench/filtered": [v1], "reward_bench_2/test": v2}.items():
        path = tmp_path / f"{name}.jsonl"
        path.parent.mkdir()
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    sets = read_sets([Plugin(name="reward_bench"), Plugin(name="reward_bench_2")], str(tmp_path))
    results = {name: one.examine(ByLength()) for name, one in sets.items()}
    assert results["reward_bench"].scores == {"Reasoning": 1.0, "score": 1.0}
    assert results["reward_bench_2"].scores["Math"] == 1.0


def write_llmbar(folder: Path, rows: int = 6) -> None:
    path = folder / "llmbar/natural.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    found = [
        {"input": f"Say {n}.", "output_1": f"{n}", "output_2": "no", "label": 1 + n % 2}
        for n in range(rows)
    ]
    path.write_text(json.dumps(found), encoding="utf-8")


def test_limits_are_nested_and_faults_come_together(tmp_path: Path) -> None:
    write_llmbar(tmp_path, 20)
    few = PANEL_SETS["llmbar"](str(tmp_path), limit=3).items
    more = PANEL_SETS["llmbar"](str(tmp_path), limit=9).items
    assert len(few) == 3
    assert set(few) < set(more)
    given = [Plugin(name="pandalm"), Plugin(name="llmbar", options={"subsets": ["other"]})]
    with pytest.raises(DataError) as caught:
        read_sets(given, str(tmp_path))
    assert len(caught.value.faults) == 2
    with pytest.raises(ConfigError, match="named twice"):
        read_sets([Plugin(name="llmbar")] * 2, str(tmp_path))
    (tmp_path / "llmbar/natural.json").write_text('[{"input": "a", "label": 3}]')
    with pytest.raises(DataError, match="label"):
        read_sets([Plugin(name="llmbar")], str(tmp_path))


def test_the_stage_measures_and_requires(
    tiny_policy: Path, tmp_path: Path, journal: Journal, seal: Callable[..., object]
) -> None:
    write_llmbar(tmp_path)
    rows = [
        Preference(
            id=str(n), prompt_id=content_id(str(n)), prompt=f"p {n}", chosen=f"good {n}",
            rejected=f"bad {n}", source="s",
        )
        for n in range(30)
    ]  # fmt: skip
    write_rows(tmp_path / "preferences", rows)
    config = RewardModelConfig.model_validate(
        {"max_steps": 1, "batch_size": 4, "eval_share": 0.3, "min_accuracy": 0, "max_ece": 1}
        | {"panel_sets": [{"name": "llmbar", "min_score": 1.0}], "data_folder": str(tmp_path)}
    )
    judge = tmp_path / "judge"
    ports = {"policy": tiny_policy, "preferences": tmp_path / "preferences"}
    panel = run(config, **ports, judge=judge, journal=journal).panel
    found = panel.sets["llmbar"]
    assert found.items == 6
    assert found.scores["accuracy"] < 1
    assert not panel.passed
    assert any(reason.startswith("llmbar: accuracy") for reason in panel.reasons)
    assert still_holds({"judge": judge}, config) is None
    write_llmbar(tmp_path, 5)
    assert "llmbar have changed" in (still_holds({"judge": judge}, config) or "")
    gone = config.model_copy(update={"data_folder": str(tmp_path / "none")})
    assert [fault.what for fault in preflight(gone)] == ["no such panel set file"]
