"""The panel refuses planted bad judges, and lets a good one pass: real small classes."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from posttrain.records import Preference, content_id
from posttrain.reward_model.examine import examine, examine_texts, markup, order_swap
from posttrain.reward_model.judge import RewardModelJudge, token_pairs
from posttrain.reward_model.panel import Panel, Thresholds
from posttrain.reward_model.results import sure_correlation
from posttrain.reward_model.stage import RewardModelConfig, thresholds

DEFAULTS = thresholds(RewardModelConfig())


def preference(number: int, *, good_is_longer: bool = True) -> Preference:
    """The better response ends in a good word; how much longer it is varies."""
    prompt = f"Tell me of {number}."
    short, long = "one two", " ".join(["three"] * (2 + number % 7))
    chosen, rejected = (long, short) if good_is_longer else (short, long)
    chosen, rejected = f"{chosen} good", f"{rejected} bad"
    return Preference(
        id=content_id(prompt, chosen, rejected),
        prompt_id=content_id(prompt),
        prompt=prompt,
        chosen=chosen,
        rejected=rejected,
        source="planted",
    )


ROWS = [preference(number, good_is_longer=number % 3 > 0) for number in range(90)]


class Planted(torch.nn.Module):
    """A model whose score of a row is made of its tokens, without weights."""

    def __init__(self, good: int) -> None:
        super().__init__()
        self.config = SimpleNamespace(max_position_embeddings=512)
        self.device = torch.device("cpu")
        self.good = good

    def said(self, ids_BT: torch.Tensor, mask_BT: torch.Tensor) -> torch.Tensor:
        """Calibrated: 4 nats for the good word, 1 without."""
        return 1.0 + 3.0 * ((ids_BT == self.good) & (mask_BT == 1)).any(dim=1)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **_: Any) -> Any:
        return SimpleNamespace(logits=self.said(input_ids, attention_mask)[:, None])


class LastPad(Planted):
    """Reads the last column, which in a padded row is padding."""

    def said(self, ids_BT: torch.Tensor, mask_BT: torch.Tensor) -> torch.Tensor:
        return super().said(ids_BT, mask_BT) + 0.05 * mask_BT[:, -1]


class Length(Planted):
    """Counts tokens."""

    def said(self, ids_BT: torch.Tensor, mask_BT: torch.Tensor) -> torch.Tensor:
        return mask_BT.sum(dim=1).float()


class LogLength(Planted):
    """Counts tokens, ever less."""

    def said(self, ids_BT: torch.Tensor, mask_BT: torch.Tensor) -> torch.Tensor:
        return 4 * mask_BT.sum(dim=1).float().log()


def panel_of(kind: type[Planted], policy: Path, rows: Sequence[Preference]) -> Panel:
    tokenizer = AutoTokenizer.from_pretrained(policy)
    pairs = token_pairs(tokenizer, rows)
    # The token before the end-of-turn token tells the good response from the bad one.
    good = pairs[0].chosen[-2]
    assert all(p.chosen[-2] == good != p.rejected[-2] for p in pairs)
    assert all(good not in p.rejected for p in pairs)
    judge = RewardModelJudge(kind(good), tokenizer)
    return examine(judge, pairs, judge.model, DEFAULTS)


def test_a_sound_judge_passes(tiny_policy: Path) -> None:
    panel = panel_of(Planted, tiny_policy, ROWS)
    assert panel.passed, panel.reasons
    assert panel.length_balanced == 1.0


def test_a_judge_that_reads_the_last_pad_token_fails(tiny_policy: Path) -> None:
    panel = panel_of(LastPad, tiny_policy, ROWS)
    assert not panel.passed
    assert panel.held_out.accuracy == 1.0
    assert any("padding on the right changes" in reason for reason in panel.reasons)


@pytest.mark.parametrize("kind", [Length, LogLength])
def test_a_judge_that_scores_length_fails_where_it_is_often_right(
    kind: type[Planted], tiny_policy: Path
) -> None:
    rows = [preference(number, good_is_longer=number % 4 > 0) for number in range(100)]
    panel = panel_of(kind, tiny_policy, rows)
    assert not panel.passed
    assert any("length" in reason for reason in panel.reasons)
    assert panel.held_out.accuracy > 0.6


def test_length_fails_even_where_the_longer_response_is_always_better(tiny_policy: Path) -> None:
    rows = [preference(number) for number in range(2, 90) if number % 7 > 0]
    panel = panel_of(Length, tiny_policy, rows)
    assert panel.held_out.accuracy == 1.0
    assert panel.reasons
    assert all("margins follow" in reason for reason in panel.reasons)


class FirstPlace:
    """Prefers whatever stands first."""

    def compare(
        self, prompts: Sequence[str], firsts: Sequence[str], seconds: Sequence[str]
    ) -> list[float]:
        return [2.0 for _ in prompts]


class GoodWord:
    """Prefers the response with the good word, wherever it stands; of two alike, neither."""

    def compare(
        self, prompts: Sequence[str], firsts: Sequence[str], seconds: Sequence[str]
    ) -> list[float]:
        return [3.0 * (("good" in a) - ("good" in b)) for a, b in zip(firsts, seconds, strict=True)]


class Pointwise:
    """The same, one response at a time."""

    def score(self, prompts: Sequence[str], responses: Sequence[str]) -> list[float]:
        return [3.0 * ("good" in response) for response in responses]


class Company(Pointwise):
    """Lets the first row of a call stand out."""

    def score(self, prompts: Sequence[str], responses: Sequence[str]) -> list[float]:
        return [s + (at == 0) for at, s in enumerate(super().score(prompts, responses))]


def test_a_judge_that_prefers_the_first_place_fails() -> None:
    panel = examine_texts(FirstPlace(), ROWS, DEFAULTS)
    assert not panel.passed
    assert panel.swap is not None
    assert (panel.swap.flips, panel.swap.first_wins) == (1.0, 1.0)
    assert any("order of two responses" in reason for reason in panel.reasons)
    # Shown the better one first it would have been right every time.
    assert panel.held_out.accuracy == 0.0


def test_judges_known_by_their_answers_alone() -> None:
    for judge in (GoodWord(), Pointwise()):
        panel = examine_texts(judge, ROWS, DEFAULTS)
        assert panel.passed, panel.reasons
        assert panel.invariance.padding_left is None
    assert examine_texts(GoodWord(), ROWS, DEFAULTS).swap is not None
    [reason] = examine_texts(Company(), ROWS, DEFAULTS).reasons
    assert reason.startswith("order changes a score")


def test_order_swap_by_hand() -> None:
    # agreed; the first place twice; the second place twice; a tie both times; no answer
    found = order_swap([1.0, 1.0, -1.0, 0.0, float("nan")], [-1.0, 1.0, -1.0, 0.0, -1.0])
    assert found.flips == pytest.approx(3 / 5)
    # first place wins: 1 + 0, 1 + 1, 0 + 0, half + half, half + 0
    assert found.first_wins == pytest.approx((1 + 2 + 0 + 1 + 0.5) / 10)


def test_a_correlation_is_sure_only_of_enough_pairs() -> None:
    assert sure_correlation(1.0, 3) == 0.0
    assert sure_correlation(-1.0, 10) == 1.0
    # atanh(0.5) = 0.549306; less 1.959964 / sqrt(97) = 0.199004; tanh of 0.350302 = 0.336642
    assert sure_correlation(0.5, 100) == pytest.approx(0.336642, abs=1e-5)


def test_markup_is_a_slice_of_the_panel() -> None:
    assert markup("# Head\n- a\n1. b\n**c** and `d`\n```\n| x | y |") == 6
    assert markup("plain - text with 3. numbers") == 0
    styled = [
        row.model_copy(update={"chosen": f"- {row.chosen}"}) if at % 2 else row
        for at, row in enumerate(ROWS)
    ]
    slices = examine_texts(Pointwise(), styled, DEFAULTS).slices
    assert slices["chosen has more markup"].pairs == 45
    assert slices["chosen has as much markup"].pairs == 45


def test_thresholds_of_the_panel_are_the_stages() -> None:
    assert Thresholds() == DEFAULTS
