"""RM-Bench (arXiv:2410.16184): does substance beat style?

Each prompt has three chosen and three rejected responses: concise, detailed in plain text, and
detailed in Markdown. Cell (i, j) of the matrix is how often the chosen response of style i scores
strictly above the rejected one of style j; `hard` is the mean above the diagonal, where the wrong
response is the richer in style, `normal` that of the diagonal, `easy` that below it.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from posttrain.benchmark.suites.sources import Hub
from posttrain.errors import DataError, Fault
from posttrain.raw.sources.source import Line, field, text
from posttrain.reward_model.panel_sets.items import (
    Measured,
    PanelSet,
    Ranking,
    limited,
    rows_of,
)
from posttrain.reward_model.panel_sets.measures import by_name, margins, unscored
from posttrain.reward_model.protocol import AnyJudge
from posttrain.reward_model.results import share_of

Domain = Literal["chat", "code", "math", "safety"]
STYLES = ("concise", "detailed", "markdown")
FILES: dict[Domain, tuple[str, ...]] = {
    "chat": ("chat_filtered",),
    "code": ("code_filtered",),
    "math": ("math_filtered",),
    "safety": ("safety-refuse_filtered", "safety-response_filtered"),
}


def rm_bench(
    data_folder: str,
    /,
    *,
    domains: tuple[Domain, ...] = ("chat", "code", "math", "safety"),
    revision: str = "main",
    limit: int = 0,
    min_score: float | None = None,
) -> PanelSet:
    """The 3x3 style matrix; the total is the mean of the domains, both kinds of safety being one.

    Every named domain must be there: a total over fewer is another number. `limit`: per domain.
    """
    items: list[Ranking] = []
    hub = Hub("THU-KEG/RM-Bench", None, "train", revision)
    for domain in domains:
        lines = [
            line
            for file in FILES[domain]
            for line in rows_of(data_folder, f"rm_bench/{file}.json", hub)
            # The hub has all domains in one table, of which each file is a part.
            if str(line.values.get("domain", file)) == file.removesuffix("_filtered")
            or "domain" not in line.values
        ]
        items += limited([ranking(line, domain) for line in lines], limit)
    source = f"RM-Bench {', '.join(domains)}"
    return PanelSet("rm_bench", source, items, 0, style_matrix, min_score)


def ranking(line: Line, domain: str) -> Ranking:
    """A row of RM-Bench."""
    chosen, rejected = (tuple(map(str, field(line, n))) for n in ("chosen", "rejected"))
    if not len(chosen) == len(rejected) == len(STYLES):
        raise DataError(
            Fault(
                "not three styles",
                line.where,
                "`chosen` and `rejected` each hold one response of three styles",
                "mend the row",
            )
        )
    return Ranking(text(line, "prompt"), chosen, rejected, domain)


def style_matrix(judge: AnyJudge, items: Sequence[Ranking]) -> Measured:
    """The matrices of the domains, their means, and their mean."""
    found = margins(judge, items)
    wins = [[[margin > 0 for margin in row] for row in cells] for cells in found]
    domains = list(dict.fromkeys(item.domain for item in items))
    scores: dict[str, float] = {}
    matrices = []
    for domain in domains:
        own = [cells for cells, item in zip(wins, items, strict=True) if item.domain == domain]
        matrix = [[fmean(cells[i][j] for cells in own) for j in range(3)] for i in range(3)]
        matrices.append(matrix)
        scores |= {f"{domain} {name}": value for name, value in difficulties(matrix).items()}
        scores[domain] = fmean(value for row in matrix for value in row)
    for name in ("easy", "normal", "hard"):
        scores[name] = fmean(scores[f"{domain} {name}"] for domain in domains)
    scores["total"] = fmean(scores[domain] for domain in domains)
    mean = [[fmean(m[i][j] for m in matrices) for j in range(3)] for i in range(3)]
    cells_of = [(item.domain, win) for item, c in zip(items, wins, strict=True)
                for row in c for win in row]  # fmt: skip
    return Measured(
        "total",
        share_of([win for _, win in cells_of]),
        scores,
        by_name(cells_of),
        unscored([margin for row in cells for margin in row] for cells in found),
        mean,
    )


def difficulties(matrix: Sequence[Sequence[float]]) -> dict[str, float]:
    """Means below, on and above the diagonal."""
    cells = [(i, j) for i in range(3) for j in range(3)]
    return {
        "easy": fmean(matrix[i][j] for i, j in cells if i > j),
        "normal": fmean(matrix[i][i] for i in range(3)),
        "hard": fmean(matrix[i][j] for i, j in cells if i < j),
    }
