"""A judge behind an OpenAI-compatible server: a model of the cluster, or one that is paid for."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from posttrain.engines.server import Server
from posttrain.errors import ConfigError, Fault
from posttrain.reward_model.generative.templates import TEMPLATES, TemplateName, Tokens
from posttrain.reward_model.protocol import AnyJudge

if TYPE_CHECKING:
    from posttrain.reward_model.kinds import Made, Work

Price = Annotated[float, Field(ge=0)]


class ServedJudge:
    """Asks `url`/v1/chat/completions: `pointwise` for a score, `pairwise` for two, or `criteria`.

    The key, if one is needed, is in the environment variable that `key_variable` names. Each of
    `retries` + 1 tries has `timeout_seconds`. Answers are kept in `cache` (empty: nowhere) by
    server, model, question and options. Prices are per million tokens.
    """

    def __init__(
        self,
        *,
        url: Annotated[str, Field(pattern=r"^https?://[^/\s@]+[^\s@]*$")],
        model: Annotated[str, Field(min_length=1)],
        form: Literal["pointwise", "pairwise", "criteria"] = "pointwise",
        template: TemplateName = "boxed",
        max_tokens: Tokens = 4096,
        criteria_tokens: Tokens = 4096,
        temperature: Annotated[float, Field(ge=0)] = 0.0,
        key_variable: Annotated[str, Field(pattern=r"^([A-Z_][A-Z0-9_]*)?$")] = "",
        timeout_seconds: Annotated[float, Field(gt=0)] = 120.0,
        retries: Annotated[int, Field(ge=0)] = 3,
        concurrency: Annotated[int, Field(ge=1)] = 8,
        most_bytes: Annotated[int, Field(ge=1)] = 2**22,
        cache: str = "runs/judge-cache",
        prompt_price: Price = 0.0,
        completion_price: Price = 0.0,
    ) -> None:
        if key_variable and not os.environ.get(key_variable):
            raise ConfigError(
                Fault(
                    f"the environment has no {key_variable}",
                    "reward_model.kind.key_variable",
                    f"the key of the judge at {url} is read from it",
                    "set it, in a cluster from a secret; or leave `key_variable` out",
                )
            )
        self.server = Server(
            url.rstrip("/").removesuffix("/v1"),
            timeout_seconds,
            retries,
            "judge's server",
            key_variable,
            most_bytes,
        )
        self.model, self.form, self.template = model, form, TEMPLATES[template]
        self.max_tokens, self.criteria_tokens = max_tokens, criteria_tokens
        self.temperature, self.concurrency, self.cache = temperature, concurrency, cache
        self.prices = (prompt_price, completion_price)

    def make(self, work: "Work") -> "Made":
        """There is nothing to write: judge.json says whom to ask."""
        from posttrain.reward_model.kinds import Made

        work.folder.mkdir(parents=True, exist_ok=True)
        return Made()

    def read(self, folder: Path) -> AnyJudge:
        """A judge that asks the server; nobody is asked yet."""
        from posttrain.reward_model.client import ChatWriter, Prices
        from posttrain.reward_model.generative.judges import (
            CriteriaJudge,
            PairJudge,
            PointwiseJudge,
        )

        writer = ChatWriter(
            self.server,
            self.model,
            options={"temperature": self.temperature},
            concurrency=self.concurrency,
            cache=Path(self.cache) if self.cache else None,
            prices=Prices(*self.prices),
        )
        if self.form == "criteria":
            return CriteriaJudge(writer, self.template, self.max_tokens, self.criteria_tokens)
        form = PairJudge if self.form == "pairwise" else PointwiseJudge
        return form(writer, self.template, self.max_tokens)
