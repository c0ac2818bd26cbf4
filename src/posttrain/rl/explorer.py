"""The explorer: draws prompts, has them answered with the environment in between, and scores."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from posttrain.engines import Completion, Engine, Request, Sampling, Until
from posttrain.policies import batch_ids
from posttrain.records import Prompt
from posttrain.reward_model.protocol import Judge
from posttrain.rewards import Reward
from posttrain.rewards.gates import Gate
from posttrain.rewards.scoring import score
from posttrain.rl.budgets import Budget
from posttrain.rl.environments import Environment
from posttrain.rl.pool import Pool
from posttrain.rl.rollout import Group, Rollout
from posttrain.rl.strategies import Ask, Strategy

if TYPE_CHECKING:
    from posttrain.rl.config import RLConfig


class Origin(NamedTuple):
    """Where the policy comes from: its folder, the weights that change, and room for copies."""

    folder: Path
    weights: Mapping[str, Tensor]
    scratch: Path


@dataclass(frozen=True)
class Player:
    """What it takes to answer prompts; `turns`: step -> pieces of a response."""

    config: "RLConfig"
    engine: Engine
    tokenizer: PreTrainedTokenizerBase
    strategy: Strategy = field(kw_only=True)
    environment: Environment = field(kw_only=True)
    turns: Callable[[int], int] = field(kw_only=True)
    precision: Callable[[], AbstractContextManager[Any]] = field(default=nullcontext, kw_only=True)

    def play(self, asks: Sequence[Ask], step: int, until: Until | None = None) -> list[Rollout]:
        """A response to each ask, piece by piece; `until` may stop those that are not done."""
        drafts = [Draft.of(ask) for ask in asks]
        allowed, stops = self.turns(step), self.environment.stops(self.tokenizer)
        live = list(range(len(drafts)))
        while live:
            listening = [i for i in live if stops and drafts[i].turns < allowed]
            others = [i for i in live if i not in set(listening)]
            for chosen, heard in ((listening, stops), (others, ())):
                for at, piece in self._pieces(drafts, chosen, heard, until):
                    drafts[at].add(piece, step)
                    if piece.tokens and piece.tokens[-1] in heard:
                        self._observe(drafts[at])
            live = [i for i in live if drafts[i].open]
        return [draft.rollout(self.tokenizer) for draft in drafts]

    def _pieces(
        self,
        drafts: Sequence["Draft"],
        chosen: Sequence[int],
        stops: tuple[int, ...],
        until: Until | None,
    ) -> Iterator[tuple[int, Completion]]:
        """The next piece of each chosen draft."""
        if not chosen:
            return
        config = self.config
        sampling = Sampling(
            temperature=config.temperature, top_p=config.top_p, top_k=config.top_k, stop=stops
        )
        requests = [
            Request(
                drafts[at].ask.prompt.text,
                drafts[at].ask.seed,
                config.max_new_tokens - len(drafts[at].tokens),
                tuple(drafts[at].tokens),
            )
            for at in chosen
        ]
        told = until and (lambda done: until([chosen[place] for place in done]))
        with self.precision():
            pieces = self.engine.resume(requests, sampling, told)
        yield from zip(chosen, pieces, strict=True)

    def _observe(self, draft: "Draft") -> None:
        text = self.tokenizer.decode(draft.tokens, skip_special_tokens=True)
        heard = self.environment.observe(draft.ask.prompt, text)
        draft.hear(
            batch_ids(self.tokenizer, [heard])[0] if heard else [], self.config.max_new_tokens
        )


@dataclass(frozen=True)
class Explorer(Player):
    """What it takes to turn prompts into scored groups; `origin`: for whoever plays elsewhere."""

    pool: Pool
    sample: Callable[[Pool, int], list[Prompt]]
    budget: Budget
    rewards: Mapping[str, Reward]
    gate: Gate
    judge: Judge | None
    demonstrations: Mapping[str, Rollout]
    origin: Origin | None = None

    def groups(self, step: int, attempt: int, count: int) -> list[Group]:
        """`count` scored groups; the pool learns of their rewards."""
        prompts = self.prompts(count)
        groups: list[Group] = [() for _ in prompts]
        play = partial(self.play, step=step)
        while any(asks := self.asks(f"{step}/{attempt}", prompts, groups)):
            together = [ask for each in asks for ask in each]
            responses = self.strategy(play, together, self.demonstrations)
            groups = self.grown(groups, asks, responses)
        self.observe(groups, step)
        return groups

    def asks(
        self, draw: str, prompts: Sequence[Prompt], groups: Sequence[Group], first: int = 0
    ) -> list[list[Ask]]:
        """What the budget wants of each prompt now, the `first` of them at that place in `draw`."""
        wanted = self.budget(groups, self.config.group_size)
        return [
            [
                Ask(prompt, self.seed(f"{draw}/{at}/{place}"), None, place)
                for place in range(len(group), len(group) + more)
            ]
            for at, (prompt, group, more) in enumerate(
                zip(prompts, groups, wanted, strict=True), first
            )
        ]

    def grown(
        self,
        groups: Sequence[Group],
        asks: Sequence[Sequence[Ask]],
        responses: Sequence[Rollout],
    ) -> list[Group]:
        """The groups with the responses to the asks, scored."""
        ends = iter(responses)
        fresh = self.scored([tuple(next(ends) for _ in each) for each in asks])
        return [old + new for old, new in zip(groups, fresh, strict=True)]

    def prompts(self, count: int) -> list[Prompt]:
        """The next prompts by the sampler."""
        drawn = self.sample(self.pool, count)
        self.pool.drawn()
        return drawn

    def scored(self, groups: Sequence[Group]) -> list[Group]:
        """The groups with their rewards."""
        config = self.config
        weights, seconds = config.reward_weights, config.reward_seconds
        return score(groups, self.rewards, weights, self.judge, self.gate, seconds)

    def observe(self, groups: Sequence[Group], step: int) -> None:
        """Tell the pool what the policy, and nobody else, got on these prompts."""
        own = [tuple(r for r in group if r.source != "external") for group in groups]
        self.pool.observe([group for group in own if group], step)

    def seed(self, place: str) -> int:
        """The seed of the completion at that place; a resumed run draws the same."""
        text = f"{self.config.seed}/rollouts/{place}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


@dataclass
class Draft:
    """A response in the making."""

    ask: Ask
    tokens: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    acted: list[bool] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    turns: int = 1
    open: bool = True
    truncated: bool = False
    text: str | None = None

    @classmethod
    def of(cls, ask: Ask) -> Self:
        """A new one, or what was begun."""
        if ask.begun is None:
            return cls(ask)
        begun = ask.begun
        acted = list(begun.acted) or [True] * len(begun.tokens)
        logps, versions = list(begun.behaviour_logps), list(begun.versions)
        return cls(ask, list(begun.tokens), logps, acted, versions, begun.turns)

    def add(self, piece: Completion, step: int) -> None:
        """Write a piece; it ends the response unless somebody has a word to add."""
        self.text = piece.text if not self.tokens else None
        self.tokens += piece.tokens
        self.logps += piece.logps
        self.acted += [True] * len(piece.tokens)
        self.versions += [step] * len(piece.tokens)
        self.truncated = piece.truncated
        self.open = False

    def hear(self, ids: Sequence[int], most: int) -> None:
        """Take down the environment's words, as far as there is room, and go on."""
        ids = ids[: most - len(self.tokens)]
        self.tokens += ids
        self.logps += [0.0] * len(ids)
        self.acted += [False] * len(ids)
        self.versions += self.versions[-1:] * len(ids)
        self.turns += bool(ids)
        self.text = None
        self.open = len(self.tokens) < most
        self.truncated = not self.open

    def rollout(self, tokenizer: PreTrainedTokenizerBase) -> Rollout:
        """The response as it stands."""
        text = self.text
        if text is None:
            text = tokenizer.decode(self.tokens, skip_special_tokens=True)
        return Rollout(
            self.ask.prompt,
            text,
            tuple(self.tokens),
            tuple(self.logps),
            self.truncated,
            versions=tuple(self.versions),
            acted=() if all(self.acted) else tuple(self.acted),
            source="resumed" if self.ask.begun and self.ask.begun.tokens else "fresh",
            turns=self.turns,
            place=self.ask.place,
        )


def unfinished(rollout: Rollout, most: int) -> Rollout:
    """The same rollout, marked as stopped if it was before it was done."""
    return replace(rollout, finished=not rollout.truncated or len(rollout.tokens) >= most)
