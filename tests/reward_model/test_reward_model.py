"""The reward_model stage: its loss by hand, its panel, and a judge that scores as trained."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoTokenizer

from posttrain.artifacts import content_files, write_rows
from posttrain.errors import DataError
from posttrain.journal import Journal
from posttrain.policies import load_policy
from posttrain.records import Preference, content_id
from posttrain.reward_model.examine import bos_change, furthest
from posttrain.reward_model.judge import (
    RewardModelJudge,
    check_pad_token,
    conversation_ids,
    token_pairs,
)
from posttrain.reward_model.loading import load_judge
from posttrain.reward_model.panel import (
    Bos,
    Invariance,
    Panel,
    ScoredPair,
    Thresholds,
    accuracy,
    bins,
    judge_the_judge,
)
from posttrain.reward_model.pooling import PRIOR_LOG_ODDS, PoolingName, load_scoring_model
from posttrain.reward_model.results import correlation
from posttrain.reward_model.stage import RewardModelConfig, run
from posttrain.reward_model.trainer import reward_trainer

SMALL = {"learning_rate": 1e-2, "batch_size": 8, "log_every": 1, "max_length": 128}
STEADY = Invariance(padding_left=0, padding_right=0, order=0, trainer=0, bos=None)


def preference(number: int, margin: float | None = None) -> Preference:
    prompt = f"What is {number} + 1?"
    chosen, rejected = f"so\n#### {number + 1}", "no no no no"
    return Preference(
        id=content_id(prompt, chosen, rejected),
        prompt_id=content_id("arithmetic", prompt),
        prompt=prompt,
        chosen=chosen,
        rejected=rejected,
        source="even" if number % 2 == 0 else "odd",
        margin=margin,
    )


@pytest.fixture
def preferences(tmp_path: Path, seal: Callable[..., object]) -> Path:
    folder = tmp_path / "preferences"
    write_rows(folder, (preference(number) for number in range(40)))
    seal(folder, "Preference")
    return folder


class KilledAt(Journal):
    """A journal that dies at the third step, as a preempted pod does."""

    def progress(self, done: int, total: int, unit: str = "step", **shown: float) -> None:
        if done == 3:
            raise KeyboardInterrupt


@pytest.mark.parametrize(("rank", "precision"), [(0, "auto"), (4, "auto"), (0, "bfloat16")])
def test_learns_passes_and_judges_as_it_was_trained(
    rank: int,
    precision: str,
    tiny_policy: Path,
    preferences: Path,
    tmp_path: Path,
    journal: Journal,
) -> None:
    config = RewardModelConfig.model_validate(
        {"max_steps": 12, "eval_share": 0.25, "max_ece": 0.5, **SMALL}
        | {"lora_rank": rank, "precision": precision}
    )
    folder = tmp_path / "judge"
    report = run(config, policy=tiny_policy, preferences=preferences, judge=folder, journal=journal)
    panel = report.panel
    assert panel.passed, panel.reasons
    assert panel.held_out.pairs + report.pairs == 40
    assert report.train_loss_last < report.train_loss_first
    assert set(panel.slices) == {"source: even", "source: odd", *panel.slices}
    assert panel.invariance.bos is None
    assert panel.invariance.trainer < 1e-4
    assert panel.chosen_mean > panel.rejected_mean
    assert Panel.model_validate_json((folder / "panel.json").read_bytes()) == panel
    assert not [name for name in content_files(folder) if name.endswith((".bin", ".pt", ".pth"))]
    judge = load_judge(folder)
    good, bad = judge.score(["What is 7 + 1?"] * 2, ["so\n#### 8", "no no no no"])
    assert good > bad
    mixed = judge.score(["What is 7 + 1?", "x " * 30], ["so\n#### 8", "y " * 40])
    assert mixed[0] == pytest.approx(good, abs=1e-5)


@pytest.mark.parametrize("rank", [0, 4])
@pytest.mark.parametrize("pooling", ["last", "product", "likelihood"])
def test_a_killed_run_resumes_to_the_same_bytes(
    rank: int, pooling: PoolingName, tiny_policy: Path, preferences: Path, tmp_path: Path
) -> None:
    config = RewardModelConfig(
        max_steps=4, checkpoint_every=2, lora_rank=rank, pooling=pooling, **SMALL
    )
    ports = {"policy": tiny_policy, "preferences": preferences}
    whole = run(config, **ports, judge=tmp_path / "whole", journal=Journal(tmp_path / "a"))
    with pytest.raises(KeyboardInterrupt):
        run(config, **ports, judge=tmp_path / "torn", journal=KilledAt(tmp_path / "b"))
    assert (tmp_path / "b/scratch/checkpoint-2/complete.json").is_file()
    resumed = run(config, **ports, judge=tmp_path / "resumed", journal=Journal(tmp_path / "b"))
    assert resumed == whole
    assert content_files(tmp_path / "resumed") == content_files(tmp_path / "whole")


def test_a_judge_that_failed_its_panel_is_refused(
    tiny_policy: Path, preferences: Path, tmp_path: Path, journal: Journal
) -> None:
    config = RewardModelConfig(max_steps=1, min_accuracy=1.0, max_ece=0.0, **SMALL)
    folder = tmp_path / "judge"
    report = run(config, policy=tiny_policy, preferences=preferences, judge=folder, journal=journal)
    assert not report.panel.passed
    with pytest.raises(DataError, match="did not pass its panel"):
        load_judge(folder)
    assert len(load_judge(folder, require_panel=False).score(["a"], ["b"])) == 1
    (folder / "panel.json").write_text("{}")
    with pytest.raises(DataError, match="no panel"):
        load_judge(folder)
    with pytest.raises(DataError, match="not a judge folder"):
        load_judge(tmp_path / "nowhere", require_panel=False)


def test_too_few_preferences_are_a_data_error(
    tiny_policy: Path, tmp_path: Path, journal: Journal
) -> None:
    write_rows(tmp_path / "one", [preference(1)])
    with pytest.raises(DataError, match="not enough preferences"):
        run(
            RewardModelConfig(**SMALL),
            policy=tiny_policy,
            preferences=tmp_path / "one",
            judge=tmp_path / "judge",
            journal=journal,
        )


def test_a_pad_token_that_ends_turns_is_refused(tiny_policy: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_policy)
    tokenizer.pad_token = tokenizer.eos_token
    with pytest.raises(DataError, match="padding token"):
        check_pad_token(tokenizer, tiny_policy)


@pytest.mark.parametrize(
    ("margins", "centring", "expected"),
    [
        # -log sigmoid(2 - 1) and -log sigmoid(0 - 0), averaged
        (False, 0.0, (0.3132617 + 0.6931472) / 2),
        # -log sigmoid(2 - 1 - 0.5); the second pair states no margin
        (True, 0.0, (0.4740770 + 0.6931472) / 2),
        # plus 0.01 * (2 + 1)^2 and 0.01 * 0^2, averaged
        (False, 0.01, (0.3132617 + 0.6931472) / 2 + 0.045),
    ],
)
def test_bradley_terry_loss_by_hand(
    margins: bool,
    centring: float,
    expected: float,
    tiny_policy: Path,
    journal: Journal,
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_policy)
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(tiny_policy, num_labels=1)
    pairs = token_pairs(tokenizer, [preference(1, 0.5), preference(2)])
    config = RewardModelConfig(margins=margins, centring=centring, group_by_length=False, **SMALL)
    trainer = reward_trainer(config, model, tokenizer, pairs, journal)
    rows = sorted(trainer.train_dataset, key=lambda row: row["chosen_ids"] != pairs[0].chosen)
    batch = trainer.data_collator(rows)
    scores = torch.tensor([[2.0], [0.0], [1.0], [0.0]])

    def fixed(**_: object) -> SimpleNamespace:
        return SimpleNamespace(logits=scores)

    assert float(trainer.compute_loss(fixed, batch)) == pytest.approx(expected, abs=1e-6)


def test_panel_numbers_by_hand() -> None:
    scores = [(2.0, 0.0, 5, 3), (1.0, 0.0, 3, 5), (0.0, 0.0, 4, 4), (-1.0, 1.0, 3, 6)]
    pairs = [
        ScoredPair(source="s", chosen=c, rejected=r, chosen_length=cl, rejected_length=rl)
        for c, r, cl, rl in scores
    ]
    panel = judge_the_judge(pairs, STEADY, Thresholds(min_accuracy=0.5, max_ece=1))
    assert panel.passed
    assert panel.held_out.accuracy == 0.5
    assert panel.slices["chosen is shorter"].accuracy == 0.5
    assert panel.slices["chosen is as long"].accuracy == 0.0
    assert panel.longer_wins == 0.25
    assert panel.chosen_mean == 0.5
    assert panel.rejected_std == pytest.approx(math.sqrt(0.1875))
    # confidences 0.881 twice (one right), 0.731 (right), 0.5 (a tie is lost)
    high = 1 / (1 + math.exp(-2))
    expected = (2 * abs(high - 0.5) + abs(1 / (1 + math.exp(-1)) - 1) + 0.5) / 4
    assert panel.ece == pytest.approx(expected)
    assert sum(b.pairs for b in panel.reliability) == 4
    assert all(b.low <= b.confidence <= b.high for b in panel.reliability)


def test_accuracy_comes_with_its_wilson_interval() -> None:
    # Newcombe 1998, table I: 81 of 263
    pairs = [
        ScoredPair(source="s", chosen=at < 81, rejected=0.5, chosen_length=1, rejected_length=1)
        for at in range(263)
    ]
    share = accuracy(pairs)
    assert (share.low, share.high) == pytest.approx((0.2553, 0.3662), abs=1e-4)


def test_correlation_of_a_constant_is_zero() -> None:
    assert correlation([1, 2, 3], [2, 4, 6]) == pytest.approx(1)
    assert correlation([1, 1, 1], [2, 4, 6]) == 0.0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"padding_left": 0.1}, "padding on the left"),
        ({"padding_right": float("nan")}, "padding on the right"),
        ({"order": 0.1}, "order"),
        ({"trainer": 0.1}, "trainer"),
        ({"bos": Bos(delta=1, flips=0.5)}, "BOS"),
    ],
)
def test_each_broken_invariance_fails_the_panel(change: dict[str, object], reason: str) -> None:
    pairs = [ScoredPair(source="s", chosen=9, rejected=0, chosen_length=1, rejected_length=1)]
    assert judge_the_judge(pairs, STEADY, Thresholds()).passed
    panel = judge_the_judge(pairs, STEADY.model_copy(update=change), Thresholds())
    assert not panel.passed
    assert reason in panel.reasons[0]


def test_a_judge_that_knows_nothing_fails() -> None:
    pairs = [
        ScoredPair(source="s", chosen=0, rejected=0, chosen_length=1, rejected_length=1)
        for _ in range(10)
    ]
    panel = judge_the_judge(pairs, STEADY, Thresholds())
    assert [reason.split()[0] for reason in panel.reasons] == ["held-out", "calibration"]
    assert len(bins(pairs)) == 1
    assert json.loads(panel.model_dump_json())["passed"] is False


def test_bos_is_probed_where_there_is_one(tiny_policy: Path) -> None:
    from transformers import AutoModelForSequenceClassification

    tokenizer = AutoTokenizer.from_pretrained(tiny_policy)
    model = AutoModelForSequenceClassification.from_pretrained(tiny_policy, num_labels=1)
    judge = RewardModelJudge(model, tokenizer)
    pairs = token_pairs(tokenizer, [preference(number) for number in range(4)])
    assert bos_change(judge, pairs) is None
    tokenizer.bos_token = "<|endoftext|>"
    found = bos_change(judge, pairs)
    assert found is not None
    assert found.delta > 0
    assert 0 <= found.flips <= 1


def test_the_classifier_is_read_at_the_last_token(tiny_policy: Path) -> None:
    from transformers import AutoModelForSequenceClassification

    tokenizer = AutoTokenizer.from_pretrained(tiny_policy)
    model = AutoModelForSequenceClassification.from_pretrained(tiny_policy, num_labels=1).eval()
    rows = conversation_ids(tokenizer, ["a", "b " * 9], ["<|pad|>", "<|pad|><|pad|>"])
    assert all(row[-1] == tokenizer.eos_token_id for row in rows)
    with torch.no_grad():
        hidden = [model.model(input_ids=torch.tensor([row])).last_hidden_state for row in rows]
        expected = [float(model.score(states[0, -1])) for states in hidden]
    assert furthest(RewardModelJudge(model, tokenizer).score_ids(rows), expected) < 1e-5


def test_a_product_is_the_log_of_every_tokens_chance(tiny_policy: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_policy)
    torch.manual_seed(0)
    model = load_scoring_model(tiny_policy, "product").eval()
    rows = conversation_ids(tokenizer, ["a", "b " * 9], ["c", "d " * 5])
    expected = []
    with torch.no_grad():
        for row in rows:
            states = model.base_model(input_ids=torch.tensor([row])).last_hidden_state
            odds = (model.score(states)[0, :, 0] + PRIOR_LOG_ODDS).double()
            expected.append(float((1 / (1 + (-odds).exp())).prod().log()))
    judge = RewardModelJudge(model, tokenizer)
    assert furthest(judge.score_ids(rows), expected) < 1e-3
    assert furthest(judge.score_ids(rows, side="left"), expected) < 1e-3
    assert all(score < 0 for score in expected)


def test_a_likelihood_is_the_log_prob_of_the_conversation(tiny_policy: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_policy)
    model = load_scoring_model(tiny_policy, "likelihood").eval()
    rows = conversation_ids(tokenizer, ["a", "b " * 9], ["c", "d " * 5])
    expected = []
    with torch.no_grad():
        for row in rows:
            ids = torch.tensor([row])
            logps = load_policy(tiny_policy).model(ids).logits[0].double().log_softmax(-1)
            expected.append(float(logps[:-1].gather(1, ids[0, 1:, None]).sum()))
    judge = RewardModelJudge(model, tokenizer)
    assert furthest(judge.score_ids(rows), expected) < 1e-3
    assert furthest(judge.score_ids(rows, side="left"), expected) < 1e-3


@pytest.mark.parametrize("pooling", ["product", "likelihood"])
def test_a_judge_is_read_from_its_folder_as_it_was_made(
    pooling: PoolingName, tiny_policy: Path, preferences: Path, tmp_path: Path, journal: Journal
) -> None:
    # In these pairs the better response is the shorter one; sums over tokens follow that.
    config = RewardModelConfig(
        epochs=4, pooling=pooling, centring=0, max_length_correlation=1, **SMALL
    )
    folder = tmp_path / "judge"
    report = run(config, policy=tiny_policy, preferences=preferences, judge=folder, journal=journal)
    assert report.panel.passed, report.panel.reasons
    read = load_judge(folder)
    assert read.model.config.pooling == pooling
    assert type(read.model).__name__ == type(load_scoring_model(tiny_policy, pooling)).__name__
    high, low = read.score(["What is 7 + 1?"] * 2, ["so\n#### 8", "no no no no"])
    assert low < high < 0
