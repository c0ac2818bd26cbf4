"""What a judge's answers cost and how many were none, for reports and curves."""

from collections import Counter
from collections.abc import Mapping

from posttrain.reward_model.tournament import Tournament

JUDGE = "judge/"
"""Begins the names of a judge's counts among the metrics of a step."""


def costs_of(judge: object) -> dict[str, int]:
    """The counts of a judge that writes, over its life; empty for any other.

    asked = read + truncated + unparsed + unanswered; `requests` went to the model, and `cache_hits`
    did not; `away`, `busy`, `malformed`, `huge`, `refused`, `given_up` and `too_long` say why
    something was unanswered; `cost_micros` are millionths of the money of the price table.
    """
    bare = judge.judge if isinstance(judge, Tournament) else judge
    tally = getattr(bare, "tally", None)
    return {name: count for name, count in tally.items() if count} if tally else {}


def parse_failures(costs: Mapping[str, int]) -> dict[str, float]:
    """The share of the answers asked for that was no score; nothing where none was asked for."""
    if not costs.get("asked"):
        return {}
    unread = sum(costs.get(name, 0) for name in ("truncated", "unparsed", "unanswered"))
    return {"unread_share": unread / costs["asked"]}


def spending(judge: object) -> dict[str, float]:
    """The counts of a judge since it was loaded, and the share of its answers that was no score."""
    costs = costs_of(judge)
    return {**costs, **parse_failures(costs)}


def unanswered(kind: str, unscored: int) -> str | None:
    """Why a stored panel is not the last word: a server may have been away. Else None.

    What it did answer lies in its cache, and costs nothing again.
    """
    return (
        "the judge's server left pairs without a score" if kind == "server" and unscored else None
    )


class Meter:
    """A judge's counts since they were last read."""

    def __init__(self, judge: object) -> None:
        self.judge = judge
        self.before = Counter(costs_of(judge))

    def read(self) -> dict[str, float]:
        """As metrics of the journal, `judge/requests` and so on."""
        now = Counter(costs_of(self.judge))
        new, self.before = now - self.before, now
        return {f"{JUDGE}{name}": float(count) for name, count in new.items()}
