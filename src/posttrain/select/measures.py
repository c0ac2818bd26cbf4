"""What selectors ask a model about rows, measured when first asked and never twice.

The model is loaded for the first row that is measured; a selector that asks about no rows at all
still learns whether the input that it needs was given, which is how the stage checks before any
work. Each chunk lies in `scratch` once it is measured, so that a kill costs one chunk.
Shapes: N rows, H hidden width. Log-probs and entropies in nats.
"""

import json
import math
import random
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posttrain.artifacts import write_json
from posttrain.engines import ENGINES, Engine, Sampling
from posttrain.errors import ConfigError, Fault
from posttrain.plugins import build
from posttrain.records import Preference, Prompt, Record, Sample
from posttrain.samples import generated, in_chunks, seed_of
from posttrain.select.histories import History
from posttrain.select.rows import id_of, response_of, text_of

if TYPE_CHECKING:
    from posttrain.reward_model.protocol import Judge
    from posttrain.select.stage import SelectConfig

SUITE = "select"
FILE = "measures.jsonl"

MENDS = {
    "policy": "give --policy, a policy folder",
    "judge": "give --judge, a judge folder",
    "history": "set the option `history` to where accuracy histories are read",
}


class Measured(Record):
    """The numbers that were measured of one row, by name; those without a value are left out."""

    id: str
    measures: dict[str, float]


class Measures:
    """Measurements of rows by policy, judge and histories, as far as these were given."""

    def __init__(
        self,
        config: "SelectConfig",
        scratch: Path,
        *,
        policy: Path | None = None,
        judge: Path | None = None,
    ) -> None:
        self.config, self.scratch = config, scratch
        self._folders = {"policy": policy, "judge": judge}
        self._groups: dict[str, list[Sample]] = {}
        self._numbers: dict[str, dict[str, float]] = {}

    def groups(self, rows: Sequence[Prompt]) -> list[list[Sample]]:
        """For each prompt `rollouts` verified completions of the policy."""
        self.need("policy")
        fresh = list({row.id: row for row in rows if row.id not in self._groups}.values())
        name = f"rollouts-{len(self._groups):06}"
        chunks = in_chunks(fresh, self.config.chunk, self.scratch, name, self._rolled_out)
        for sample in [sample for chunk in chunks for sample in chunk]:
            self._groups.setdefault(sample.item_id, []).append(sample)
        return [self._groups[row.id] for row in rows]

    def pass_rates(self, rows: Sequence[Prompt]) -> list[float]:
        """The share of a prompt's rollouts that the verifier takes, in 0..1."""
        rates = [fmean(sample.correct for sample in group) for group in self.groups(rows)]
        return self.note("pass_rate", rows, rates)

    def entropies(self, rows: Sequence[Prompt]) -> list[float]:
        """The policy's entropy per token on a prompt, estimated by -log p of what it drew."""
        found = [
            -math.fsum(sample.logp or 0.0 for sample in group)
            / max(1, sum(sample.tokens for sample in group))
            for group in self.groups(rows)
        ]
        return self.note("entropy", rows, found)

    def logps(self, rows: Sequence[Record]) -> list[float]:
        """The mean log-prob per token of each row's response, the end of the turn included."""
        self.need("policy")

        def score(part: Sequence[Record]) -> list[float]:
            prompts, responses = map(text_of, part), map(response_of, part)
            return [fmean(tokens) for tokens in self._engine.logps([*prompts], [*responses])]

        return self._measured("mean_logp", rows, score)

    def margins(self, rows: Sequence[Preference]) -> list[float]:
        """The judge's score of the chosen response less that of the rejected; NaN for no answer."""
        self.need("judge")
        return self._measured("margin", rows, self._judged)

    def agreements(self, rows: Sequence[Preference], k: int, *, ask: bool) -> list[float]:
        """How often of `k` verdicts the judge prefers the chosen response; NaN for no answer.

        `ask`: the judge samples, so it is asked `k` times. Otherwise its margin is a log-odds
        (Bradley-Terry) and the verdicts are drawn with the chance 1 / (1 + exp(-margin)).
        """

        def verdict(row: Preference, margin: float, turn: int) -> float:
            chance = float(margin > 0) if ask else 1 / (1 + math.exp(-max(-700.0, margin)))
            return float(random.Random(f"{self.config.seed}/{row.id}/{turn}").random() < chance)

        def score(part: Sequence[Preference]) -> list[float]:
            rounds = [self._judged(part) if ask else self.margins(part) for _ in range(k)]
            return [
                fmean(verdict(row, margin, turn) for turn, margin in enumerate(margins))
                if all(map(math.isfinite, margins))
                else math.nan
                for row, margins in zip(part, zip(*rounds, strict=True), strict=True)
            ]

        self.need("judge")
        return self._measured(f"agreement_{k}" + "_asked" * ask, rows, score)

    def scores(self, rows: Sequence[Record]) -> list[float]:
        """The judge's score of each row's response; NaN for no answer."""
        self.need("judge")

        def score(part: Sequence[Record]) -> list[float]:
            return self._judge.score([*map(text_of, part)], [*map(response_of, part)])

        return self._measured("score", rows, score)

    def hidden(self, rows: Sequence[Record]) -> NDArray[np.float32]:
        """The policy's last hidden state at the end of each prompt, a float32 array [N, H]."""
        self.need("policy")
        if not rows:
            return np.zeros((0, 1), dtype=np.float32)
        from posttrain.select.hidden import last_states

        return last_states(self._policy, [text_of(row) for row in rows], self.config.chunk).numpy()

    def histories(self, rows: Sequence[Record]) -> list[History | None]:
        """Each row's accuracies over training, by its id or its prompt; None without a history."""
        self.need("history")
        found = [self._histories.get(id_of(row)) for row in rows]
        texts = [self._histories.get(text_of(row).strip()) for row in rows]
        return [one or other for one, other in zip(found, texts, strict=True)]

    def has(self, name: str) -> bool:
        """Whether an input was given: `policy`, `judge` or `history`."""
        return self.config.history is not None if name == "history" else bool(self._folders[name])

    def need(self, name: str) -> None:
        """Raise ConfigError unless the input was given."""
        if not self.has(name):
            why = "the selector measures rows by it"
            raise ConfigError(Fault(f"no {name}", "select.selectors", why, MENDS[name]))

    def note(self, name: str, rows: Sequence[Record], values: Sequence[float]) -> list[float]:
        """Keep what was measured or made of it for `measures.jsonl`, and give it back."""
        self._numbers.setdefault(name, {}).update(zip(map(id_of, rows), values, strict=True))
        return list(values)

    def noted(self) -> list[Measured]:
        """All that is known by row, in the order in which rows were first measured."""
        ids = dict.fromkeys(key for known in self._numbers.values() for key in known)
        rows = []
        for key in ids:
            found = {name: known.get(key, math.nan) for name, known in self._numbers.items()}
            kept = {name: round(value, 6) for name, value in found.items() if math.isfinite(value)}
            rows.append(Measured(id=key, measures=kept))
        return rows

    def _measured(
        self, name: str, rows: Sequence[Any], score: Callable[[Sequence[Any]], list[float]]
    ) -> list[float]:
        known = self._numbers.setdefault(name, {})
        fresh = list({row.id: row for row in rows if row.id not in known}.values())
        for start in range(0, len(fresh), self.config.chunk):
            part = fresh[start : start + self.config.chunk]
            path = self.scratch / f"{name}-{len(known):06}.json"
            if not path.is_file():
                write_json(path, score(part))
            self.note(name, part, json.loads(path.read_text(encoding="utf-8")))
        return [known[row.id] for row in rows]

    def _judged(self, rows: Sequence[Preference]) -> list[float]:
        prompts = [row.prompt for row in rows]
        responses = [row.chosen for row in rows] + [row.rejected for row in rows]
        # Both sides in one call: a judge may read a prompt once for all its responses.
        scores = self._judge.score(prompts * 2, responses)
        return [a - b for a, b in zip(scores[: len(rows)], scores[len(rows) :], strict=True)]

    def _rolled_out(self, rows: Sequence[Prompt], place: int) -> list[Sample]:
        sampling = Sampling(
            samples=self.config.rollouts,
            temperature=self.config.temperature,
            max_new_tokens=self.config.max_new_tokens,
            seed=seed_of(self.config.seed, SUITE, rows[0].id, place),
        )
        return generated(self._engine, SUITE, rows, sampling)

    @cached_property
    def _policy(self) -> Any:
        from posttrain.policies import load_policy

        folder = self._folders["policy"]
        assert folder is not None
        return load_policy(folder)

    @cached_property
    def _engine(self) -> Engine:
        return build(ENGINES, self.config.engine, "select.engine")(self._policy)

    @cached_property
    def _judge(self) -> "Judge":
        from posttrain.reward_model.loading import load_judge

        folder = self._folders["judge"]
        assert folder is not None
        return load_judge(folder, allow_failed=self.config.allow_failed_judge)

    @cached_property
    def _histories(self) -> dict[str, History]:
        from posttrain.select.histories import HISTORIES

        assert self.config.history is not None
        read = build(HISTORIES, self.config.history, "select.history")()
        return {key: History(place, found) for place, (key, found) in enumerate(read.items())}
