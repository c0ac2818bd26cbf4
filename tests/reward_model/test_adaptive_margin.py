"""Margins that the model makes itself: by hand, without a gradient, and through the stage."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn.functional import logsigmoid

from posttrain.artifacts import content_files, write_rows
from posttrain.engines.transformers import TransformersEngine
from posttrain.errors import DataError
from posttrain.journal import Journal, read_curves
from posttrain.plugins import Plugin
from posttrain.policies import load_policy
from posttrain.records import Preference, content_id
from posttrain.reward_model.evolving import checked, confident, threshold
from posttrain.reward_model.judge import token_pairs
from posttrain.reward_model.kinds import Work
from posttrain.reward_model.kinds.bt_adaptive_margin import AdaptiveMargin
from posttrain.reward_model.loading import load_judge
from posttrain.reward_model.margins import LiveMargin, adaptive_margin
from posttrain.reward_model.pooling import load_scoring_model
from posttrain.reward_model.stage import RewardModelConfig, run
from posttrain.reward_model.trainer import reward_trainer

SMALL = {"learning_rate": 1e-2, "batch_size": 8, "log_every": 1, "max_length": 128}


def preference(number: int, *, flipped: bool = False) -> Preference:
    prompt = f"What is {number} + 1?"
    good, bad = f"so\n#### {number + 1}", "no no no no"
    chosen, rejected = (bad, good) if flipped else (good, bad)
    return Preference(
        id=content_id(prompt, chosen, rejected),
        prompt_id=content_id("arithmetic", prompt),
        prompt=prompt,
        chosen=chosen,
        rejected=rejected,
        source="planted",
    )


def test_margins_by_hand() -> None:
    gaps = torch.tensor([-1.0 + 1.5, -0.5, 9.0], requires_grad=True)
    margins = adaptive_margin(gaps, torch.zeros(3), 1.0, 2.0)
    assert margins.tolist() == [0.5, 0.0, 2.0]
    assert not margins.requires_grad
    assert adaptive_margin(gaps, torch.full((3,), 0.3), 2.0, 2.0)[0].item() == pytest.approx(0.4)
    # -log sigmoid(1.2 - m)
    losses = -logsigmoid(1.2 - torch.tensor([0.0, 0.5]))
    assert losses.tolist() == pytest.approx([0.2633, 0.4032], abs=1e-4)


def test_self_labels_by_hand() -> None:
    assert confident([0.1, 0.9, -1.2], 0.5) == [(1, True), (2, False)]
    # sizes 0.1, 0.9, 1.2: the 70th percentile lies 0.4 of the way from 0.9 to 1.2
    assert threshold([0.1, 0.9, -1.2], 0.7) == pytest.approx(1.02)
    assert threshold([], 0.7) == 0.0


def work_of(policy: Path, folder: Path, **options: object) -> Work:
    config = RewardModelConfig.model_validate({**SMALL, **options})
    tokenizer = load_policy(policy).tokenizer
    pairs = token_pairs(tokenizer, [preference(number) for number in range(24)])
    return Work(config, policy, tokenizer, pairs, folder / "judge", Journal(folder / "journal"))


@pytest.mark.parametrize("pooling", ["last", "likelihood"])
@pytest.mark.parametrize("rank", [0, 2])
def test_the_margin_is_of_mean_log_probs_of_the_responses(
    pooling: str, rank: int, tiny_policy: Path, tmp_path: Path
) -> None:
    work = work_of(tiny_policy, tmp_path, pooling=pooling, lora_rank=rank, margins=True)
    model = load_scoring_model(tiny_policy, work.config.pooling)
    kind = AdaptiveMargin(strength=3.0)
    live = LiveMargin(kind, model, work)
    trainer = reward_trainer(work.config, model, work.tokenizer, work.pairs, work.journal, live)
    batch = next(iter(trainer.get_train_dataloader()))
    engine = TransformersEngine(load_policy(tiny_policy))
    rows = {tuple(pair.chosen): pair.row for pair in work.pairs}
    taken = [
        rows[tuple(ids[mask.bool()].tolist())]
        for ids, mask in zip(batch["input_ids"][:8], batch["attention_mask"][:8], strict=True)
    ]
    expected = []
    for row in taken:
        [high], [low] = (engine.logps([row.prompt], [one]) for one in (row.chosen, row.rejected))
        expected.append(sum(high) / len(high) - sum(low) / len(low))
    unwrapped = trainer.accelerator.unwrap_model(trainer.model)
    gaps = live.gaps(unwrapped, batch)
    assert gaps.tolist() == pytest.approx(expected, abs=1e-4)
    margins = live.of(unwrapped, batch)
    assert margins.tolist() == pytest.approx(
        [min(2.0, max(0.0, 3 * g)) for g in expected], abs=1e-3
    )
    scores = trainer.model(
        input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]
    ).logits.view(2, 8)
    plain = (
        -logsigmoid(scores[0] - scores[1] - margins).mean()
        + 0.01 * ((scores[0] + scores[1]) ** 2).mean()
    )
    loss = trainer.compute_loss(trainer.model, batch)
    assert loss.item() == pytest.approx(plain.item(), rel=1e-4)


def test_against_its_reference_a_model_begins_without_a_margin(
    tiny_policy: Path, tmp_path: Path
) -> None:
    work = work_of(tiny_policy, tmp_path)
    model = load_scoring_model(tiny_policy, "last")
    live = LiveMargin(AdaptiveMargin(variant="ref"), model, work)
    trainer = reward_trainer(work.config, model, work.tokenizer, work.pairs, work.journal, live)
    batch = next(iter(trainer.get_train_dataloader()))
    assert float(live.of(model, batch).abs().max()) < 1e-5
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.5)
    assert float(live.of(model, batch).abs().max()) > 1e-3


def test_pairs_to_stop_by_have_their_own_prompts(tiny_policy: Path, tmp_path: Path) -> None:
    pairs = work_of(tiny_policy, tmp_path).pairs
    learned, check = checked(pairs, 0.1)
    assert len(check) == 2
    assert len(learned) == 22
    assert not {p.row.prompt_id for p in learned} & {p.row.prompt_id for p in check}
    with pytest.raises(DataError, match="not enough prompts"):
        checked(pairs[:1], 0.1)


def test_margins_and_a_round_of_self_evolution_through_the_stage(
    tiny_policy: Path, tmp_path: Path, seal: Callable[..., object]
) -> None:
    rng = random.Random(0)
    # Of 20% of the pairs to learn from, the better response is called the worse.
    rows = [preference(number, flipped=rng.random() < 0.2) for number in range(120)]
    write_rows(tmp_path / "preferences", rows)
    found = {}
    options = {"rounds": 1, "draws": 16, "max_new_tokens": 8, "check_share": 0.2}
    for kind in (
        Plugin(name="bradley_terry"),
        Plugin(name="bt_adaptive_margin"),
        Plugin(name="bt_adaptive_margin", options={"variant": "ref", **options}),
    ):
        name = f"judge-{len(found)}"
        report = run(
            RewardModelConfig(kind=kind, max_steps=12, eval_share=0.25, **SMALL),
            policy=tiny_policy,
            preferences=tmp_path / "preferences",
            judge=tmp_path / name,
            journal=Journal(tmp_path / "journals" / name),
        )
        found[name] = report
    plain, free, evolved = found.values()
    assert plain.numbers == {}
    assert free.panel.held_out.accuracy >= plain.panel.held_out.accuracy
    assert evolved.panel.held_out.accuracy >= plain.panel.held_out.accuracy - 0.01
    assert {"round_0/check_accuracy", "round_1/check_accuracy"} <= evolved.numbers.keys()
    assert load_judge(tmp_path / "judge-2", require_panel=False).score(["a"], ["b"])


class KilledLater(Journal):
    """A journal that dies when the steps of the second round are logged."""

    def log(self, step: int, **metrics: float) -> None:
        if step > 4:
            raise KeyboardInterrupt
        super().log(step, **metrics)


def test_a_run_killed_in_its_second_round_resumes_to_the_same_bytes(
    tiny_policy: Path, tmp_path: Path
) -> None:
    write_rows(tmp_path / "preferences", [preference(number) for number in range(40)])
    options = {"rounds": 1, "draws": 8, "max_new_tokens": 8}
    kind = Plugin(name="bt_adaptive_margin", options=options)
    config = RewardModelConfig(kind=kind, max_steps=3, checkpoint_every=2, **SMALL)
    ports = {"policy": tiny_policy, "preferences": tmp_path / "preferences"}
    whole = run(config, **ports, judge=tmp_path / "a", journal=Journal(tmp_path / "ja"))
    with pytest.raises(KeyboardInterrupt):
        run(config, **ports, judge=tmp_path / "b", journal=KilledLater(tmp_path / "jb"))
    resumed = run(config, **ports, judge=tmp_path / "c", journal=Journal(tmp_path / "jb"))
    assert resumed == whole
    assert content_files(tmp_path / "c") == content_files(tmp_path / "a")
    steps = {point.step for point in read_curves(Journal(tmp_path / "ja").curves)}
    assert steps == {1, 2, 3, 4, 5, 6}
