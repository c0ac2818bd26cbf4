"""Readers of pairs: JudgeBench, LLMBar, PandaLM and hh-rlhf."""

from collections.abc import Iterator
from typing import Literal

from posttrain.benchmark.suites.sources import Hub
from posttrain.raw.sources.preference_files import FILES, pandalm_row
from posttrain.raw.sources.preference_files import hh_rlhf as hh_rlhf_row
from posttrain.raw.sources.source import Line, Skipped, field, text
from posttrain.reward_model.agreement import majority
from posttrain.reward_model.panel_sets.items import (
    Pair,
    PanelSet,
    bad_label,
    limited,
    rows_of,
)
from posttrain.reward_model.panel_sets.measures import human_agreement, pair_accuracy

Writer = Literal["gpt4o", "claude35"]
JUDGEBENCH_SPLITS: dict[Writer, str] = {"gpt4o": "gpt", "claude35": "claude"}


def judgebench(
    data_folder: str,
    /,
    *,
    writers: tuple[Writer, ...] = ("gpt4o", "claude35"),
    revision: str = "main",
    limit: int = 0,
    min_score: float | None = None,
) -> PanelSet:
    """JudgeBench (arXiv:2410.12784): one response is objectively right; both orders are shown."""
    pairs = []
    for writer in writers:
        hub = Hub("ScalerLab/JudgeBench", None, JUDGEBENCH_SPLITS[writer], revision)
        lines = rows_of(data_folder, f"judgebench/judgebench_{writer}.jsonl", hub)
        pairs += [judgebench_pair(line) for line in lines]
    source = f"JudgeBench, responses of {', '.join(writers)}"
    return PanelSet("judgebench", source, limited(pairs, limit), 0, pair_accuracy, min_score)


def judgebench_pair(line: Line) -> Pair:
    """A row of JudgeBench; its slice is one of four fields of knowledge."""
    label = text(line, "label")
    if label not in ("A>B", "B>A"):
        raise bad_label(line, "label", label, "`A>B` or `B>A`")
    origin = text(line, "source")
    # Searched in this order: mmlu-pro-math belongs to knowledge, as upstream counts it.
    domains = {"mmlu": "knowledge", "reason": "reasoning", "math": "math", "livecode": "coding"}
    domain = next((name for key, name in domains.items() if key in origin), origin)
    question, first, second = (text(line, n) for n in ("question", "response_A", "response_B"))
    return Pair(question, first, second, 1 if label == "A>B" else 2, domain)


def llmbar(
    data_folder: str,
    /,
    *,
    subsets: tuple[str, ...] = ("natural",),
    limit: int = 0,
    min_score: float | None = None,
) -> PanelSet:
    """LLMBar (arXiv:2310.07641): which output follows the instruction; both orders are shown.

    A subset is a file `llmbar/NAME.json`, upstream's `dataset.json` of that folder.
    """
    pairs = [
        llmbar_pair(line, subset)
        for subset in subsets
        for line in rows_of(data_folder, f"llmbar/{subset}.json")
    ]
    source = f"LLMBar {', '.join(subsets)}"
    return PanelSet("llmbar", source, limited(pairs, limit), 0, pair_accuracy, min_score)


def llmbar_pair(line: Line, subset: str) -> Pair:
    """A row of LLMBar."""
    label = field(line, "label")
    if label not in (1, 2):
        raise bad_label(line, "label", label, "1 or 2")
    prompt, first, second = (text(line, name) for name in ("input", "output_1", "output_2"))
    return Pair(prompt, first, second, label, subset)


def pandalm(data_folder: str, /, *, limit: int = 0, min_score: float | None = None) -> PanelSet:
    """PandaLM (arXiv:2306.05087): three annotators, who may call a tie (0).

    Rows without a majority have no word to agree with; they are skipped and counted.
    """
    lines = list(rows_of(data_folder, FILES["pandalm"]))
    pairs = list(pandalm_pairs(lines))
    skipped = len(lines) - len(pairs)
    source = "PandaLM, people's verdicts"
    return PanelSet("pandalm", source, limited(pairs, limit), skipped, human_agreement, min_score)


def pandalm_pairs(lines: list[Line]) -> Iterator[Pair]:
    """The rows with a majority; the slice is the pair of models that wrote them."""
    for line in lines:
        row = pandalm_row(line)
        better = majority(row.votes)
        if better is not None:
            yield Pair(row.prompt, *row.responses, better, text(line, "cmp_key"), row.votes)


def hh_rlhf(data_folder: str, /, *, limit: int = 0, min_score: float | None = None) -> PanelSet:
    """hh-rlhf harmless, test rows (arXiv:2204.05862); conversations that share no turn are skipped.

    The texts are offensive; a panel keeps numbers alone.
    """
    lines = list(rows_of(data_folder, FILES["hh_rlhf_harmless"]))
    rows = [row for line in lines if not isinstance(row := hh_rlhf_row(line), Skipped)]
    # The better one stands first in every other pair, lest a liking for a place look like skill.
    pairs = []
    for at, row in enumerate(rows):
        sides = (row.chosen or "", row.rejected or "")
        longer = "longer" if len(sides[0]) > len(sides[1]) else "not longer"
        first, second = sides if at % 2 == 0 else sides[::-1]
        pairs.append(Pair(row.prompt, first, second, 1 + at % 2, f"better one is {longer}"))
    skipped = len(lines) - len(pairs)
    source = "hh-rlhf harmless-base, test"
    return PanelSet("hh_rlhf", source, limited(pairs, limit), skipped, pair_accuracy, min_score)
