"""vLLM in another process or on another machine, asked over HTTP with token ids.

Its weights are not synchronised. Start it on the policy's folder, and anew for another policy:
`python -m vllm.entrypoints.openai.api_server --model POLICY --dtype float32 --port 8000`, on a CPU
with `--no-enable-chunked-prefill`, without which it dies of a seeded prompt that it reads in two
parts. Before the first draw a probe's log-probs are compared with the policy's own; a policy that
is trained while the engine is in use is refused. What `posttrain.engines.vllm` says of seeds holds
here too, on a CPU for a server that nobody else asks. At temperatures besides 0 and 1 the policy
measures the log-probs itself, since the server tells those at 1.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from threading import Event
from typing import Any

import torch

from posttrain.engines import Until
from posttrain.engines.likelihood import Row, batches, response_logps
from posttrain.engines.pieces import (
    Piece,
    Written,
    answered,
    check_copy,
    generated,
    probe_ids,
    resumed,
    weight_version,
)
from posttrain.engines.sampling import Completion, Request, Sampling
from posttrain.engines.server import Server
from posttrain.engines.transformers import evaluating, stop_ids
from posttrain.errors import ConfigError, DataError, Fault
from posttrain.policies import Policy

RESCORE_TOKENS = 16_384
"""Tokens of a pass in which the policy measures what the server cannot tell."""


class ServedEngine:
    """Draws from a server; the options are those of `vllm_server_engine`."""

    def __init__(
        self,
        policy: Policy,
        server: Server,
        *,
        model: str | None,
        concurrency: int,
        tolerance: float,
    ) -> None:
        self.policy, self.server = policy, server
        self.concurrency, self.tolerance = concurrency, tolerance
        self._model = model
        self._version: object = None

    def generate(self, prompts: Sequence[str], sampling: Sampling) -> list[list[Completion]]:
        """Draw `sampling.samples` completions of each prompt [P][samples]."""
        return generated(self.policy, self._write, prompts, sampling)

    def resume(
        self, requests: Sequence[Request], sampling: Sampling, until: Until | None = None
    ) -> list[Completion]:
        """Go on with each request; see `Engine.resume`."""
        return resumed(self.policy, self._write, requests, sampling, until)

    def logps(self, prompts: Sequence[str], responses: Sequence[str]) -> list[list[float]]:
        """Log-probs at temperature 1 of each response's tokens and the end-of-turn token."""
        self._check()
        rows = answered(self.policy, prompts, responses)
        found = self._together([partial(self._measured, p + a) for p, a in rows], [])
        return [logp_T[-len(a) :] for logp_T, (_, a) in zip(found, rows, strict=True)]

    def _write(
        self, pieces: Sequence[Piece], sampling: Sampling, until: Until | None = None
    ) -> list[Written]:
        self._check()
        stopped = Event()
        streamed = stopped if until else None
        asked = [partial(self._piece, piece, sampling, streamed) for piece in pieces]
        written = self._together(asked, Written(), until, stopped)
        if sampling.temperature in (0, 1):
            return written
        return self._rescored(pieces, written, sampling.temperature)

    def _together(
        self,
        asked: Sequence[Callable[[], Any]],
        nothing: Any,
        until: Until | None = None,
        stopped: Event | None = None,
    ) -> list[Any]:
        """The answers in order, `concurrency` at a time; `nothing` for what was never begun."""
        done: list[int] = []
        with ThreadPoolExecutor(self.concurrency) as threads:
            places = {threads.submit(one): at for at, one in enumerate(asked)}
            try:
                for future in as_completed(places):
                    future.result()
                    done.append(places[future])
                    if until is not None and until(done):
                        break
            finally:
                if stopped is not None:
                    stopped.set()
                for future in places:
                    future.cancel()
        return [nothing if future.cancelled() else future.result() for future in places]

    def _piece(self, piece: Piece, sampling: Sampling, stopped: Event | None) -> Written:
        asked = {
            "model": self._name(),
            "prompt": [*piece.prefix],
            "max_tokens": piece.room,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
            # Else the model's generation config would have its say.
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "seed": piece.seed,
            "stop_token_ids": sorted(stop_ids(self.policy) | set(sampling.stop)),
            "logprobs": 0,
            "return_token_ids": True,
            "stream": stopped is not None,
        }
        tokens: list[int] = []
        logps: list[float] = []
        for part in self.server.ask("/v1/completions", asked, stopped):
            for choice in part.get("choices") or []:
                tokens += choice.get("token_ids") or []
                logps += (choice.get("logprobs") or {}).get("token_logprobs") or []
        if len(tokens) != len(logps) or not (tokens or stopped):
            raise self._unfit("it does not tell token ids and their log-probs")
        return Written(tuple(tokens), tuple(logps))

    def _measured(self, ids: Sequence[int]) -> list[float]:
        """Log-probs of a row's tokens from the second on."""
        asked = {
            "model": self._name(),
            "prompt": [*ids],
            "max_tokens": 1,
            "temperature": 0.0,
            "prompt_logprobs": 0,
        }
        (answer,) = self.server.ask("/v1/completions", asked)
        steps = (answer.get("choices") or [{}])[0].get("prompt_logprobs") or []
        if len(steps) != len(ids):
            raise self._unfit("it does not tell log-probs of the prompt")
        return [
            float(step[str(token)]["logprob"])
            for token, step in zip(ids[1:], steps[1:], strict=True)
        ]

    def _rescored(
        self, pieces: Sequence[Piece], written: Sequence[Written], temperature: float
    ) -> list[Written]:
        """The same with log-probs at the sampling temperature, by the policy."""
        rows = [
            Row(piece.prefix, one.tokens, at)
            for at, (piece, one) in enumerate(zip(pieces, written, strict=True))
            if one.tokens
        ]
        found = list(written)
        pad = int(self.policy.tokenizer.pad_token_id)
        with evaluating(self.policy), torch.no_grad():
            for chunk in batches(rows, RESCORE_TOKENS):
                logp_BT, _ = response_logps(self.policy.model, chunk, pad, temperature)
                for row, logp_T in zip(chunk, logp_BT.tolist(), strict=True):
                    found[row.place] = Written(row.response, tuple(logp_T[: len(row.response)]))
        return found

    def _name(self) -> str:
        if self._model is None:
            (answer,) = self.server.ask("/v1/models")
            names = [str(one["id"]) for one in answer.get("data") or []]
            if not names:
                raise self._unfit("it serves no model")
            self._model = names[0]
        return self._model

    def _check(self) -> None:
        """Raise DataError unless the server holds the policy's weights of now."""
        version = weight_version(self.policy.model)
        if version == self._version:
            return
        stale = "the policy was trained since, and the weights of a server stay"
        fault = Fault(
            "the server does not hold the policy's weights",
            self.server.url,
            "it serves another model, or in another precision" if self._version is None else stale,
            "start it on this policy's folder with --dtype float32; to train, `engine: vllm`",
        )
        if self._version is not None:
            raise DataError(fault)
        check_copy(self.policy, self._measured(probe_ids(self.policy)), self.tolerance, fault)
        self._version = version

    def _unfit(self, why: str) -> ConfigError:
        return ConfigError(
            Fault("this server will not do", self.server.url, why, "serve the policy with vLLM")
        )
