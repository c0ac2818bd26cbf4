"""RL of a judge by pairs: CE-RM in two stages, from its rewards to its use."""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.benchmark.conftest import config as of_suites
from tests.benchmark.conftest import go, lay

from posttrain.artifacts import read_rows, write_rows
from posttrain.best_of_n.stage import BestOfNConfig
from posttrain.best_of_n.stage import run as best_of_n
from posttrain.errors import ConfigError, DataError
from posttrain.journal import Journal, read_curves
from posttrain.methods import load_method
from posttrain.plugins import Plugin, build
from posttrain.policies import chat_ids, load_policy, response_ids, save_policy
from posttrain.raw.sources import SOURCES, Skipped, files_read
from posttrain.records import Preference, Prompt, RawRow, Sample, content_id
from posttrain.reject.stage import RejectConfig
from posttrain.reject.stage import run as reject
from posttrain.reward_model.generative.pairs import case_of, judging_row
from posttrain.reward_model.generative.templates import COMPACT, TEMPLATES
from posttrain.reward_model.stage import RewardModelConfig
from posttrain.reward_model.stage import run as reward_model
from posttrain.rewards.ce_rm import ce_rm as reward
from posttrain.rewards.verifiers import verify
from posttrain.rl.advantages import ADVANTAGES
from posttrain.rl.ce_rm import ce_rm, longest_turn
from posttrain.rl.config import RLConfig
from posttrain.rl.parts import build_parts
from posttrain.rl.reference import groups_in
from posttrain.rl.rollout import Group, Rollout
from posttrain.rl.scored import Scored
from posttrain.rl.stage import run as rl
from posttrain.rl.strategies import Ask

DATA = Path(os.environ.get("POSTTRAIN_DATA", Path(__file__).parents[3] / "shared/data"))
EMBEDDED = Path(__file__).parents[2] / "src/posttrain/base/tiny"


def pair(number: int, template: Any = "compact") -> Prompt:
    raw = RawRow.of(
        source="t", task="t", prompt=f"Say {number}", chosen=f"good {number}", rejected="bad"
    )
    row = judging_row(raw, template)
    answer = row.answer or ""
    key = content_id(row.task, row.prompt)
    return Prompt(id=key, text=row.prompt, answer=answer, task=row.task, source="t")


def asks_of(prompt: Prompt, size: int) -> list[Ask]:
    return [Ask(prompt, 100 + place, None, place) for place in range(size)]


def answering(asks: Sequence[Ask]) -> list[Rollout]:
    """Criteria named by their seed; scores by the response and the seed."""
    found = []
    for ask in asks:
        criteria = ask.prompt.text.endswith("Criteria?")
        text = f"C:c{ask.seed}" if criteria else "S:8" if "good" in ask.prompt.text else "S:2"
        found.append(Rollout(ask.prompt, text, (ask.seed,), (-1.0,), False, place=ask.place))
    return found


def test_twenty_places_are_four_criteria_and_two_evaluations_of_each_response() -> None:
    prompts = [pair(1), pair(1), pair(2)]
    found = ce_rm(answering, [ask for p in prompts for ask in asks_of(p, 20)], {})
    groups = [found[at : at + 20] for at in range(0, 60, 20)]
    for prompt, group in zip(prompts, groups, strict=True):
        assert [r.prompt.id for r in group] == [prompt.id] * 20
        assert [r.tokens[0] for r in group] == list(range(100, 120))
        cases = [case_of(r.prompt) for r in group]
        roles = [(case.role, case.under) for case in cases if case]
        assert roles[:4] == [("criteria", m) for m in range(4)]
        assert sorted(roles[4:]) == sorted(
            (role, m) for role in ("chosen", "rejected") for m in range(4) for _ in range(2)
        )
        for rollout, (role, under) in zip(group[4:], roles[4:], strict=True):
            response = "bad" if role == "rejected" else f"good {prompt.text.split()[1][0]}"
            assert f"\n{response}\nC:c{100 + under}\nScore?" in rollout.prompt.text
        assert all("good" not in r.prompt.text for r in group[:4])


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_smaller_groups_have_fewer_criteria(size: int) -> None:
    found = ce_rm(answering, asks_of(pair(1), size), {})
    roles = [case.role for r in found if (case := case_of(r.prompt))]
    assert len(roles) == size
    assert roles.count("criteria") == max(1, size // 3)


def turns(chosen: Sequence[str], rejected: Sequence[str], criteria: str = "C:ab") -> Group:
    """A group of one set of criteria."""
    case = case_of(pair(1))
    assert case is not None
    roles = [("criteria", criteria), *(("chosen", t) for t in chosen)]
    roles += [("rejected", t) for t in rejected]
    return tuple(
        Rollout(
            pair(1).model_copy(
                update={"answer": case.model_copy(update={"role": role}).model_dump_json()}
            ),
            text,
            (place,),
            (-1.0,),
            False,
            place=place,
        )
        for place, (role, text) in enumerate(roles)
    )


@pytest.mark.parametrize(
    ("chosen", "rejected", "expected"),
    [
        (["S:8", "S:6"], ["S:7", "S:5"], [0.75, 1.0, 0.5, 0.5, 1.0]),
        (["S:7", "S:7"], ["S:7", "S:7"], [0.0] * 5),
        (["S:8", "?"], ["S:7", "S:5"], [0.5, 1.0, 0.0, 0.5, 0.5]),
        (["S:8", "S:6"], ["S:7", "?"], [0.25, 0.5, 0.0, 0.5, 0.0]),
    ],
)
def test_rewards_by_hand(chosen: list[str], rejected: list[str], expected: list[float]) -> None:
    assert reward(turns(chosen, rejected), None) == expected


def test_what_is_not_in_form_has_no_reward() -> None:
    assert reward(turns(["S:8"], ["S:7"], "criteria: ab"), None) == [0.0, 1.0, 1.0]
    cut = [replace(r, truncated=True) for r in turns(["S:8"], ["S:7"])]
    assert reward(cut, None) == [0.0, 0.0, 0.0]
    assert reward([], None) == []


def test_two_groups_of_one_pair_are_told_apart() -> None:
    groups = turns(["S:8"], ["S:7"]), turns(["S:7"], ["S:8"])
    assert list(groups_in([*groups[0], *groups[1]])) == list(groups)
    assert reward([*groups[0], *groups[1]], None) == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]


def test_each_condition_is_normalised_alone() -> None:
    group = turns(["S:8", "S:6"], ["S:7", "S:5"])
    rewards = [0.75, 1.0, 0.5, 0.5, 1.0]
    scored = Scored([tuple(replace(r, reward=v) for r, v in zip(group, rewards, strict=True))])
    found = ADVANTAGES["ce_rm"](scored, scale="population_std")
    wanted = [0.0, 1.0, -1.0, -1.0, 1.0]
    assert [float(a) for a in found.advantages] == pytest.approx(wanted, abs=1e-5)
    assert found.metrics == {
        "ce_rm/in_form": 1.0,
        "ce_rm/chosen_score": 7.0,
        "ce_rm/rejected_score": 6.0,
        "ce_rm/accuracy": 0.75,
    }


def test_a_second_question_needs_room_for_what_the_first_one_wrote() -> None:
    assert longest_turn(pair(1)) == COMPACT.evaluation.format(
        query="Say 1", criteria="", response="good 1"
    )
    other = Prompt(id="1", text="2 + 2?", answer="4", task="arithmetic", source="t")
    assert longest_turn(other) == "2 + 2?"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "plain"}, "take both, or neither"),
        ({"rewards": ["verifier"]}, "take both, or neither"),
        ({"budget": "dars"}, "take `budget: fixed`"),
        ({"controller": "partial_rollout"}, "take `strategy: plain`"),
        ({"strategy": {"name": "ce_rm", "criteria": 0}}, "criteria"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], message: str) -> None:
    config = RLConfig.model_validate({**load_method("ce_rm").sections["rl"], **options})
    with pytest.raises(ConfigError, match=message):
        build_parts(config, has_judge=False, has_demonstrations=False)


def test_pairs_of_any_source_become_prompts(tmp_path: Path) -> None:
    rows = [
        RawRow.of(source="s", task="t", prompt="q", chosen="a", rejected="b"),
        RawRow.of(source="s", task="t", prompt="q", chosen="a", rejected=" a"),
        RawRow.of(source="s", task="t", prompt="q", answer="1"),
    ]
    write_rows(tmp_path, rows)
    inner = {"name": "procedural", "preferences": 3, "prompts": 1}
    inner |= {"demonstrations": 0, "evaluation": 1, "dirt": {}}
    plugin = Plugin(name="judging", options={"pairs": inner, "template": "compact"})
    found = list(build(SOURCES, plugin)(0))
    kept = [row for row in found if isinstance(row, RawRow)]
    assert len(kept) == 3
    assert {row.task for row in kept} == {"judging"}
    assert {r.reason for r in found if isinstance(r, Skipped)} == {"not a pair to judge"}
    assert files_read(plugin) == []
    file = str(tmp_path / "rows.jsonl")
    read = {"name": "preference_files", "folder": file}
    (path,) = files_read(Plugin(name="judging", options={"pairs": read}))
    assert path.parent.parent == Path(file)
    with pytest.raises(ConfigError, match="pairs of pairs"):
        list(build(SOURCES, Plugin(name="judging", options={"pairs": plugin}))(0))


@pytest.mark.realdata
@pytest.mark.skipif(not DATA.is_dir(), reason="POSTTRAIN_DATA names no folder")
@pytest.mark.parametrize("template", TEMPLATES)
def test_real_pairs_become_prompts_that_can_be_verified(template: str) -> None:
    inner = {"name": "preference_files", "folder": str(DATA)}
    plugin = Plugin(name="judging", options={"pairs": inner, "template": template})
    found = list(build(SOURCES, plugin)(0))
    rows = [row for row in found if isinstance(row, RawRow)]
    assert len(found) == 696
    pairs = build(SOURCES, Plugin.model_validate(inner))(0)
    distinct = {row.id for row in pairs if isinstance(row, RawRow)}
    assert len({row.id for row in rows}) == len(distinct) > 500
    first = [json.loads(row.answer or "")["chosen_first"] for row in rows]
    assert 0.4 < sum(first) / len(rows) < 0.6
    one = "1" if template == "compact" else "Scores: \\boxed{9} \\boxed{1}"
    verified = [verify(row.task, row.prompt, row.answer or "", one) for row in rows]
    assert verified == first


def cold_start(folder: Path, out: Path, queries: int, steps: int) -> Path:
    """A policy that writes the compact form, and scores by the toss of a coin."""
    policy = load_policy(folder)
    asked: list[tuple[str, str]] = []
    for n in range(queries):
        question = COMPACT.criteria.format(query=f"Say {n}")
        asked += [(question, "C:ab")] * 2
        for response in (f"good {n}", "bad"):
            question = COMPACT.evaluation.format(query=f"Say {n}", criteria="ab", response=response)
            asked += [(question, "S:3"), (question, "S:8")]
    prompts = [chat_ids(policy.tokenizer, question) for question, _ in asked]
    answers = [response_ids(policy.tokenizer, answer) for _, answer in asked]
    width = max(len(p) + len(a) for p, a in zip(prompts, answers, strict=True))
    ids = torch.full((len(asked), width), int(policy.tokenizer.pad_token_id))
    labels, mask = torch.full_like(ids, -100), torch.zeros_like(ids)
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        end = len(prompt) + len(answer)
        ids[row, :end], mask[row, :end] = torch.tensor([*prompt, *answer]), 1
        labels[row, len(prompt) : end] = torch.tensor(answer)
    rate = 1e-2 if policy.model.num_parameters() < 1e5 else 2e-3
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=rate)
    for _ in range(steps):
        policy.model(input_ids=ids, attention_mask=mask, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    save_policy(policy.model, policy.tokenizer, out)
    return out


@pytest.mark.parametrize(
    ("which", "steps", "rate"),
    [("tiny", 32, 3e-3), pytest.param("embedded", 24, 5e-4, marks=pytest.mark.slow)],
)
def test_a_judge_learns_to_judge_and_best_of_n_asks_it(
    which: str, steps: int, rate: float, tiny_policy: Path, tmp_path: Path
) -> None:
    start = EMBEDDED if which == "embedded" else tiny_policy
    policy = cold_start(start, tmp_path / "policy", queries=4, steps=60)
    write_rows(tmp_path / "prompts", [pair(n) for n in range(4)])
    given = {"steps": steps, "prompts_per_step": 4, "minibatches": 1, "learning_rate": rate}
    given |= {"method": "ce_rm", "max_new_tokens": 6, "kl_coefficient": 0.0}
    options = {**load_method("ce_rm").sections["rl"], **given}
    report = rl(
        RLConfig.model_validate(options),
        policy=policy,
        prompts=tmp_path / "prompts",
        trained=tmp_path / "trained",
        journal=Journal(tmp_path / "rl"),
    )
    assert report.generated == steps * 4 * 20
    assert report.generated == report.used + sum(report.dropped.values())
    points = list(read_curves(tmp_path / "rl/curves.jsonl"))
    accuracy = [p.value for p in points if p.name == "ce_rm/accuracy"]
    assert accuracy[0] < 0.5
    assert accuracy[-1] > accuracy[0] + 0.2

    rows = [
        Preference(
            id=str(n),
            prompt_id=content_id(str(n)),
            prompt=f"Say {n % 4}",
            chosen=f"good {n % 4}",
            rejected="bad",
            source="t",
        )
        for n in range(12)
    ]
    write_rows(tmp_path / "preferences", rows)
    kind = {"name": "ce_rm", "template": "compact", "criteria_tokens": 6, "max_tokens": 6}
    config = RewardModelConfig.model_validate({"kind": kind, "eval_share": 0.5, "max_ece": 1})
    made = reward_model(
        config,
        policy=tmp_path / "trained",
        preferences=tmp_path / "preferences",
        judge=tmp_path / "judge",
        journal=Journal(tmp_path / "rm"),
    )
    assert made.panel.passed, made.panel.reasons
    assert made.numbers["criteria"] <= 4
    assert made.numbers["unread_share"] == 0.0

    prompts = [
        Prompt(id=str(n), text=f"Say {n}", answer="1", task="arithmetic", source="t")
        for n in range(2)
    ]
    write_rows(tmp_path / "evaluation", prompts)
    found = best_of_n(
        BestOfNConfig(n_max=4, max_new_tokens=3, resamples=200),
        policy=tiny_policy,
        evaluation=tmp_path / "evaluation",
        judge=tmp_path / "judge",
        scores=tmp_path / "scores",
        journal=Journal(tmp_path / "bon"),
    )
    judged = [row.judge for row in read_rows(tmp_path / "scores", Sample)]
    assert any(score is not None for score in judged)
    assert found.outcomes["judge_criteria"] == 2
    assert found.outcomes["judge_asked"] == 2 + 8

    rejected = reject(
        RejectConfig(samples=2, max_new_tokens=3, verifier=False, keep_truncated=True),
        policy=tiny_policy,
        prompts=tmp_path / "evaluation",
        judge=tmp_path / "judge",
        demonstrations=tmp_path / "demonstrations",
        journal=Journal(tmp_path / "reject"),
    )
    assert rejected.judge_costs["asked"] == 2 + 4
    suite = of_suites("mt_bench", data_folder=str(lay(tmp_path / "data", "mt_bench")))
    benchmarked = go(tmp_path / "benchmark", tiny_policy, suite, judge=tmp_path / "judge")
    assert benchmarked.judge_costs["asked"] > 0
    assert 0.0 <= benchmarked.judge_costs["unread_share"] <= 1.0


def test_prompts_without_pairs_are_refused(tiny_policy: Path, tmp_path: Path) -> None:
    prompt = Prompt(id="1", text="2 + 2?", answer="4", task="arithmetic", source="t")
    write_rows(tmp_path / "prompts", [prompt])
    with pytest.raises(DataError, match="no pairs to judge"):
        rl(
            RLConfig.model_validate({**load_method("ce_rm").sections["rl"], "steps": 1}),
            policy=tiny_policy,
            prompts=tmp_path / "prompts",
            trained=tmp_path / "trained",
            journal=Journal(tmp_path / "rl"),
        )
