"""The tokens and the servers' money that a finished stage's report tells of."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Report = Mapping[str, Any]


class Tokens(NamedTuple):
    """Tokens drawn from a policy, and tokens that gradients were taken of."""

    generated: int = 0
    trained: int = 0


def learnt(report: Report) -> Tokens:
    """Supervised stages count every token of every pass."""
    return Tokens(trained=int(report.get("tokens") or 0))


def drawn(report: Report) -> Tokens:
    return Tokens(generated=int(report.get("tokens") or 0))


def reinforced(report: Report) -> Tokens:
    """Of the tokens drawn, those of the rollouts that were learnt from (by their mean length)."""
    tokens, generated = int(report.get("tokens") or 0), int(report.get("generated") or 0)
    share = int(report.get("used") or 0) / generated if generated else 0.0
    return Tokens(tokens, round(tokens * share))


def rejected(report: Report) -> Tokens:
    return Tokens(round((report.get("samples") or 0) * (report.get("mean_tokens") or 0.0)))


def scored(report: Report) -> Tokens:
    suites = (report.get("suites") or {}).values()
    return Tokens(
        round(sum(s.get("n", 0) * s.get("samples", 1) * s.get("tokens", 0) for s in suites))
    )


TOKENS: dict[str, Callable[[Report], Tokens]] = {
    "sft": learnt,
    "reward_model": learnt,
    "rl": reinforced,
    "reject": rejected,
    "best_of_n": drawn,
    "benchmark": scored,
}
"""Stage -> how to read its report; a stage that is not named moves no tokens."""

MICROS = re.compile(r"(.*/)?(judge_)?cost_micros")


def tokens_of(stage: str, report: Report) -> Tokens:
    """The tokens of a finished stage."""
    return TOKENS[stage](report) if stage in TOKENS else Tokens()


def judge_money(report: Report) -> float:
    """What a judge's server asked for, by the prices that its plug-in declares."""
    return sum(value for name, value in leaves(report) if MICROS.fullmatch(name)) / 1e6


def leaves(report: Report, prefix: str = "") -> list[tuple[str, float]]:
    """The numbers of a report by their path."""
    found: list[tuple[str, float]] = []
    for name, value in report.items():
        if isinstance(value, Mapping):
            found += leaves(value, f"{prefix}{name}/")
        elif isinstance(value, int | float):
            found.append((f"{prefix}{name}", float(value)))
    return found
