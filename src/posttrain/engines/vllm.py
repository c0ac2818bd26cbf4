"""vLLM in this process, for dense models: the policy's weights are copied into it when they change.

Every token's random number is vLLM's own, so that a seed gives other texts than with the
transformers engine; the same seed, requests and weights give the same texts again. A resumed
response goes on from its prompt and what is written, with a seed made from the request's and the
number of tokens written: it differs from one drawn in one piece. Log-probs are the model's own at
the sampling temperature, before top-k and top-p, as everywhere.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from posttrain.engines import Until
from posttrain.engines.pieces import (
    Piece,
    Written,
    answered,
    check_copy,
    generated,
    plain_weights,
    probe_ids,
    resumed,
    weight_version,
)
from posttrain.engines.sampling import Completion, Request, Sampling
from posttrain.engines.transformers import stop_ids
from posttrain.engines.vllm_host import (
    keep_groups,
    save_shape,
    undisturbed,
    unpacked,
    with_settings,
)
from posttrain.errors import ConfigError, DataError, Fault
from posttrain.policies import Policy

EXACT, ROUNDED = 1e-3, 0.5
"""Tolerances in nats: on a CPU with float32 on both sides, and with anything that rounds more."""


class VLLMEngine:
    """Draws with an offline `vllm.LLM`; the options are those of `vllm_engine`."""

    def __init__(
        self,
        policy: Policy,
        *,
        gpu_memory_utilization: float,
        kv_cache_gib: float | None,
        max_model_len: int | None,
        batch: int,
        dtype: str,
        enforce_eager: bool,
        sleep: bool,
        tolerance: float | None,
    ) -> None:
        with_settings()
        from vllm.model_executor.layers.logits_processor import LogitsProcessor
        from vllm.platforms import current_platform

        keep_groups()
        if sleep and not current_platform.is_sleep_mode_available():
            raise ConfigError(
                Fault(
                    "vLLM cannot sleep here",
                    "engine.vllm.sleep",
                    f"it has no sleep mode on {current_platform.device_name}",
                    "leave `sleep` out",
                )
            )
        if kv_cache_gib is None and current_platform.is_cpu():
            kv_cache_gib = 1.0
        self.policy, self.sleep = policy, sleep
        own = str(policy.model.dtype).removeprefix("torch.")
        held = own if dtype == "policy" else dtype
        exact = own == held == "float32" and current_platform.is_cpu()
        self.tolerance = tolerance or (EXACT if exact else ROUNDED)
        self.llm = started(
            policy.model,
            dtype=held,
            gpu_memory_utilization=gpu_memory_utilization,
            kv_cache_memory_bytes=kv_cache_gib and int(kv_cache_gib * 2**30),
            max_model_len=max_model_len,
            max_num_seqs=batch,
            enforce_eager=enforce_eager,
            enable_sleep_mode=sleep,
            # Half-read prompts with a seed make vLLM rewind it, which no CPU generator can.
            enable_chunked_prefill=False if current_platform.is_cpu() else None,
        )
        self.max_model_len = int(self.llm.llm_engine.model_config.max_model_len)
        self._version: object = None
        found: list[Any] = self.llm.apply_model(
            lambda model: [m for m in model.modules() if isinstance(m, LogitsProcessor)]
        )
        self._scalers = found[0]
        if sleep:
            self.llm.sleep(level=1)

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
        rows = answered(self.policy, prompts, responses)
        with self._awake():
            found = self._measured([prompt + answer for prompt, answer in rows])
        return [logp_T[-len(answer) :] for logp_T, (_, answer) in zip(found, rows, strict=True)]

    def _write(
        self, pieces: Sequence[Piece], sampling: Sampling, until: Until | None = None
    ) -> list[Written]:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        ends = sorted(stop_ids(self.policy) | set(sampling.stop))
        asked = [
            SamplingParams(
                temperature=float(sampling.temperature > 0),
                top_p=sampling.top_p,
                top_k=sampling.top_k,
                seed=piece.seed if sampling.temperature else None,
                max_tokens=piece.room,
                stop_token_ids=ends,
                logprobs=0,
                detokenize=False,
                output_kind=RequestOutputKind.DELTA,
            )
            for piece in pieces
        ]
        tokens: list[list[int]] = [[] for _ in pieces]
        logps: list[list[float]] = [[] for _ in pieces]

        def add(at: int, output: Any) -> None:
            (part,) = output.outputs
            tokens[at] += part.token_ids
            logps[at] += [
                step[token].logprob
                for token, step in zip(part.token_ids, part.logprobs or [], strict=True)
            ]

        # Seeded rows, too, draw from the process's generator first.
        with self._awake(), self._scaled(sampling.temperature or 1.0), torch.random.fork_rng():
            self._run([piece.prefix for piece in pieces], asked, add, until)
        return [Written(tuple(t), tuple(p)) for t, p in zip(tokens, logps, strict=True)]

    def _run(
        self,
        prompts: Sequence[Sequence[int]],
        asked: Sequence[Any],
        add: Callable[[int, Any], None],
        until: Until | None = None,
    ) -> None:
        """Step the engine until all are done or `until` says so; `add` is given what comes out."""
        self._check_room(prompts)
        engine = self.llm.llm_engine
        done: list[int] = []
        try:
            for at, (ids, params) in enumerate(zip(prompts, asked, strict=True)):
                engine.add_request(str(at), {"prompt_token_ids": [*ids]}, params)
            while engine.has_unfinished_requests():
                before = len(done)
                for output in engine.step():
                    at = int(output.request_id)
                    add(at, output)
                    if output.finished:
                        done.append(at)
                if until is not None and len(done) > before and until(done):
                    break
        finally:
            left = set(range(len(prompts))) - set(done)
            engine.abort_request([str(at) for at in sorted(left)])

    def _check_room(self, prompts: Sequence[Sequence[int]]) -> None:
        longest = max(map(len, prompts), default=0)
        if longest >= self.max_model_len:
            raise DataError(
                Fault(
                    f"a prompt of {longest} tokens, or a response with it",
                    "engine.vllm.max_model_len",
                    f"vLLM reads at most {self.max_model_len - 1} and writes one more",
                    "raise `max_model_len`, or leave long prompts out",
                )
            )

    def _measured(self, rows: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probs of each row's tokens from the second on."""
        from vllm import SamplingParams

        asked = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0, detokenize=False)
        found: list[list[float]] = [[] for _ in rows]

        def add(at: int, output: Any) -> None:
            steps = zip(rows[at], output.prompt_logprobs, strict=True)
            found[at] = [step[token].logprob for token, step in steps if step]

        self._run(rows, [asked] * len(rows), add)
        return found

    @contextmanager
    def _awake(self) -> Iterator[None]:
        """With memory of its own and the policy's weights of now."""
        if self.sleep:
            self.llm.wake_up()
        try:
            self._synchronise()
            yield
        finally:
            if self.sleep:
                self.llm.sleep(level=1)

    def _synchronise(self) -> None:
        version = weight_version(self.policy.model)
        if version == self._version:
            return
        self._version = None
        self.llm.apply_model(lambda model: model.load_weights(plain_weights(self.policy.model)))
        self.llm.reset_prefix_cache()
        (found,) = self._measured([probe_ids(self.policy)])
        fault = Fault(
            "vLLM does not hold the policy's weights",
            "engine.vllm",
            "this model's weights cannot be written into vLLM in place, or its kernels round more",
            "use `transformers`, a longer `dtype`, or raise `tolerance` if the gap is rounding",
        )
        check_copy(self.policy, found, self.tolerance, fault)
        self._version = version

    @contextmanager
    def _scaled(self, temperature: float) -> Iterator[None]:
        """Let the model itself divide its logits: vLLM's log-probs know no temperature but 1."""
        scales = [scaler.scale for scaler in self._scalers]
        for scaler in self._scalers:
            scaler.scale = scaler.scale / temperature
        try:
            yield
        finally:
            for scaler, scale in zip(self._scalers, scales, strict=True):
                scaler.scale = scale


def started(model: Any, **options: Any) -> Any:
    """An `LLM` of the model's shape, without its weights.

    Raises ConfigError when vLLM does not know the model or has no room for it.
    """
    from vllm import LLM

    with TemporaryDirectory(prefix="posttrain-vllm-") as folder, undisturbed(), unpacked():
        save_shape(model, Path(folder))
        try:
            return LLM(
                folder,
                skip_tokenizer_init=True,
                load_format="dummy",
                generation_config="vllm",
                **options,
            )
        except ValueError as error:
            raise ConfigError(
                Fault(
                    "vLLM does not start",
                    "engine.vllm",
                    str(error)[:500],
                    "mend the option that it names, or choose `engine: transformers`",
                )
            ) from None
