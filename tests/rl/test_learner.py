"""The learner's options for memory change nothing that it learns, and its measures agree."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from posttrain.engines import likelihood
from posttrain.engines.likelihood import Row
from posttrain.engines.packing import PackedRow
from posttrain.engines.transformers import TransformersEngine
from posttrain.errors import DataError
from posttrain.plugins import build
from posttrain.policies import chat_ids, load_policy
from posttrain.records import Prompt
from posttrain.rl.config import RLConfig
from posttrain.rl.embeddings import start_embeddings
from posttrain.rl.experience import Lesson
from posttrain.rl.learner import Learner
from posttrain.rl.losses import POLICY_LOSSES
from posttrain.rl.precisions import PRECISIONS
from posttrain.rl.rollout import Rollout

OPTIONS = {
    "plain": {},
    "terms": {"kl_coefficient": 0.1, "entropy_bonus": 0.01, "ppo_epochs": 2},
    "lora": {"lora_rank": 2},
    "fp8": {"precision": {"name": "unified_fp8", "block": 16}},
}


def rollout(number: int, tokens: tuple[int, ...], acted: tuple[bool, ...] = ()) -> Rollout:
    text = f"{number + 2} + {number} = ?"
    prompt = Prompt(id=f"{number}", text=text, answer="1", task="arithmetic", source="test")
    return Rollout(prompt, "", tokens, (-6.6,) * len(tokens), False, acted=acted)


ROLLOUTS = [
    rollout(0, (20, 21, 22)),
    rollout(0, (23,)),
    rollout(0, ()),
    rollout(1, (24, 25, 26, 27, 28), (True, False, False, True, True)),
]


def learner(policy: Path, options: dict[str, object]) -> Learner:
    config = RLConfig.model_validate({"max_new_tokens": 8, "micro_batch_tokens": 40} | options)
    precision = build(PRECISIONS, config.precision, "rl.precision")
    return Learner(config, policy, POLICY_LOSSES["clip"], precision=precision)


def learnt(policy: Path, options: dict[str, object]) -> dict[str, torch.Tensor]:
    """Metrics and Adam's first moments, which are the gradients."""
    lessons = [Lesson(each, i // 3, (i - 1.5,), True) for i, each in enumerate(ROLLOUTS)]
    mine = learner(policy, options)
    metrics = mine.update(lessons, 1e-3)
    moments = {name: t.clone() for name, t in mine.tensors().items() if name.endswith("exp_avg")}
    assert any(moment.abs().max() > 1e-4 for moment in moments.values())
    return moments | {name: torch.tensor(value) for name, value in metrics.items()}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_checkpointing_and_sliced_logits_change_nothing(
    tiny_policy: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, object]
) -> None:
    expected = learnt(tiny_policy, options)
    monkeypatch.setattr(likelihood, "LOGITS_BYTES", 2 * 4 * 768)
    found = learnt(tiny_policy, options | {"gradient_checkpointing": True})
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=2e-6, rtol=1e-5, msg=name)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_packed_rows_teach_what_padded_ones_do(
    tiny_policy: Path, options: dict[str, object]
) -> None:
    expected = learnt(tiny_policy, options)
    for more in ({}, {"gradient_checkpointing": True}):
        found = learnt(tiny_policy, options | more | {"packing": True})
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, atol=2e-6, rtol=1e-5, msg=name)


def test_a_packed_row_has_no_pads() -> None:
    """Two responses of one prompt and one of another: 2 + 2 + 0 + 1 + 1 columns."""
    packed = PackedRow.of([((5, 6), (7, 8, 9)), ((5, 6), (7,)), ((4,), (3, 2))])
    assert packed.ids_N.tolist() == [5, 6, 7, 8, 4, 3]
    assert packed.positions_N.tolist() == [0, 1, 2, 3, 0, 1]
    assert packed.before == [[1, 2, 3], [1], [4, 5]]
    assert packed.visible().int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [0, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 1, 1],
    ]


def test_the_view_measures_what_the_engine_does(tiny_policy: Path) -> None:
    mine = learner(tiny_policy, {"kl_coefficient": 0.1})
    policy = load_policy(tiny_policy)
    end = policy.tokenizer.eos_token_id
    text = "abc 12"
    tokens = (*policy.tokenizer(text, add_special_tokens=False)["input_ids"], end)
    measured = mine.logps([rollout(0, tokens), rollout(1, tokens)])
    engine = TransformersEngine(policy).logps(["2 + 0 = ?", "3 + 1 = ?"], [text, text])
    for found, expected in zip(measured, engine, strict=True):
        assert found.dtype == torch.float64
        assert found.tolist() == pytest.approx(expected, abs=1e-5)
    assert torch.equal(mine.reference_logps([rollout(0, tokens)])[0], measured[0])


def test_gradient_norms_are_those_of_the_tokens_that_the_policy_wrote(tiny_policy: Path) -> None:
    mine = learner(tiny_policy, {})
    norms = mine.gradient_norms(ROLLOUTS)
    assert norms[2] == 0
    policy = load_policy(tiny_policy)
    row = Row(tuple(chat_ids(policy.tokenizer, "3 + 1 = ?")), ROLLOUTS[3].tokens, 0)
    scores_BT, _ = likelihood.response_logps(policy.model, [row], 1)
    gradients = torch.autograd.grad(scores_BT[0, [0, 3, 4]].sum(), list(policy.model.parameters()))
    assert norms[3] == pytest.approx(sum(float(g.square().sum()) for g in gradients), rel=1e-5)


def test_the_mismatch_is_of_what_this_policy_drew(tiny_policy: Path) -> None:
    """Replayed completions and worked solutions are another's, whatever their log-probs."""
    mine = learner(tiny_policy, {})
    drawn = rollout(0, (20, 21, 22))
    off = tuple(float(logp) + 0.25 for logp in mine.logps([drawn])[0])
    own = replace(drawn, behaviour_logps=off)
    others = [
        replace(rollout(1, (24, 25)), behaviour_logps=(-50.0, -50.0), source=source)
        for source in ("replay", "external")
    ]
    lessons = [Lesson(each, i, (1.0,), True) for i, each in enumerate([own, *others])]
    assert mine.update(lessons, 0.0)["mismatch/mean"] == pytest.approx(0.25, abs=1e-5)
    mine.config = mine.config.model_copy(update={"max_mismatch": 0.1})
    mine.update(lessons[1:], 0.0)
    with pytest.raises(DataError, match=r"differ by 0\.25"):
        mine.update(lessons, 0.0)


def test_prompts_are_compared_by_the_policy_that_the_run_began_with(tiny_policy: Path) -> None:
    prompts = [each.prompt for each in (ROLLOUTS[0], ROLLOUTS[3])]
    embed, mine = start_embeddings(tiny_policy), learner(tiny_policy, {})
    table_VH = mine.model.get_input_embeddings().weight.detach().double().clone()
    first_PH = embed(prompts[:1])
    mine.update([Lesson(each, i, (1.0,), True) for i, each in enumerate(ROLLOUTS[:2])], 0.1)
    ids = mine.policy.tokenizer(prompts[1].text, add_special_tokens=False)["input_ids"]
    assert torch.equal(embed(prompts)[0], first_PH[0])
    torch.testing.assert_close(embed(prompts)[1], table_VH[ids].mean(dim=0))


def test_gradients_are_those_of_a_draw_among_the_likeliest(tiny_policy: Path) -> None:
    """With one token to choose from there is nothing to learn, and the chances stay the model's."""
    one, whole = (learner(tiny_policy, options) for options in ({"top_k": 1}, {}))
    lesson = Lesson(rollout(1, ()), 0, (1.0,), True)
    text = lesson.rollout.prompt.text
    logits_V = whole.model(torch.tensor([chat_ids(whole.policy.tokenizer, text)])).logits[0, -1]
    likeliest = replace(lesson.rollout, tokens=(int(logits_V.argmax()),), behaviour_logps=(-1.0,))
    lesson = lesson._replace(rollout=likeliest)
    assert torch.equal(one.logps([likeliest])[0], whole.logps([likeliest])[0])
    assert one.update([lesson], 0.0)["grad_norm"] == pytest.approx(0, abs=1e-6)
    assert whole.update([lesson], 0.0)["grad_norm"] > 1e-3
