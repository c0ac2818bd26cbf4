"""Drawing completions chunk by chunk, and finding the fate of each."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from posttrain.artifacts import write_json
from posttrain.engines import Engine, Sampling
from posttrain.records import Prompt
from posttrain.reject.selectors import Candidate, Selector
from posttrain.reward_model.protocol import Judge
from posttrain.rewards.verifiers import verify
from posttrain.samples import seed_of

KEPT = "kept"


class Drawn(NamedTuple):
    """What sifting needs of a completion; `tokens` is their number."""

    text: str
    tokens: int
    truncated: bool


@dataclass(frozen=True)
class Sifted:
    """A prompt, its candidates in the order they were drawn, and the fate of each."""

    prompt: Prompt
    drawn: list[Drawn]
    candidates: list[Candidate]
    fates: list[str]


def chunks(rows: Sequence[Prompt], size: int) -> Iterator[Sequence[Prompt]]:
    """The prompts in runs of `size`."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def draw(
    engine: Engine,
    chunk: Sequence[Prompt],
    sampling: Sampling,
    seed: int,
    number: int,
    scratch: Path,
) -> list[list[Drawn]]:
    """The completions [P][samples] of chunk `number`: read from scratch, or drawn and kept there.

    Each chunk has a seed of its own, so that a resumed run draws what an unbroken one draws.
    """
    path = scratch / f"chunk-{number:05d}.json"
    ids = [prompt.id for prompt in chunk]
    if path.is_file():
        saved = json.loads(path.read_text(encoding="utf-8"))
        if saved["ids"] == ids:
            return [[Drawn(*fields) for fields in group] for group in saved["drawn"]]
    own = sampling._replace(seed=seed_of(seed, "reject", number))
    groups = [
        [Drawn(c.text, len(c.tokens), c.truncated) for c in group]
        for group in engine.generate([prompt.text for prompt in chunk], own)
    ]
    write_json(path, {"ids": ids, "drawn": groups})
    return groups


def sift(
    chunk: Sequence[Prompt],
    groups: Sequence[Sequence[Drawn]],
    selector: Selector,
    judge: Judge | None,
    *,
    verifier: bool,
    keep_truncated: bool = False,
) -> list[Sifted]:
    """Verify, drop, score the rest and select; one result per prompt."""
    sifted = []
    for prompt, drawn in zip(chunk, groups, strict=True):
        correct = [
            verify(prompt.task, prompt.text, prompt.answer, d.text) if verifier else None
            for d in drawn
        ]
        candidates = [
            Candidate(d.text, right, None) for d, right in zip(drawn, correct, strict=True)
        ]
        ended = [d._replace(truncated=d.truncated and not keep_truncated) for d in drawn]
        sifted.append(Sifted(prompt, [*drawn], candidates, first_fates(ended, correct)))
    if judge is not None:
        _score(sifted, judge)
    for one in sifted:
        alive = [at for at, fate in enumerate(one.fates) if fate == KEPT]
        kept = {alive[at] for at in selector([one.candidates[at] for at in alive])}
        for at in alive:
            one.fates[at] = KEPT if at in kept else "not_selected"
    return sifted


def first_fates(drawn: Sequence[Drawn], correct: Sequence[bool | None]) -> list[str]:
    """The fate of each completion before selection; of equal texts the first survives."""
    seen: set[str] = set()
    fates = []
    for one, right in zip(drawn, correct, strict=True):
        text = " ".join(one.text.split())
        if right is False:
            fates.append("wrong")
        elif one.truncated:
            fates.append("truncated")
        elif not text:
            fates.append("empty")
        elif text in seen:
            fates.append("duplicate")
        else:
            seen.add(text)
            fates.append(KEPT)
    return fates


def _score(sifted: Sequence[Sifted], judge: Judge) -> None:
    """Give every survivor its judge's score, all prompts in one go."""
    places = [(one, at) for one in sifted for at, fate in enumerate(one.fates) if fate == KEPT]
    scores = judge.score(
        [one.prompt.text for one, _ in places], [one.drawn[at].text for one, at in places]
    )
    for (one, at), score in zip(places, scores, strict=True):
        one.candidates[at] = one.candidates[at]._replace(judge=score)
