"""Engines: where tokens come from. To add one, write the class and a line in ENGINES.

An engine is made from a policy it shares with its caller: after the caller changes the
weights, the next call samples from the new ones. This module stays light, because options
are checked long before a model is loaded.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field

from posttrain.engines.sampling import Completion, Request, Sampling
from posttrain.errors import ConfigError, Fault

__all__ = ["ENGINES", "Completion", "Engine", "Request", "Sampling", "Until"]

Until = Callable[[Sequence[int]], bool]


class Engine(Protocol):
    """Draws completions and measures likelihoods; prompts are the users' plain texts."""

    def generate(self, prompts: Sequence[str], sampling: Sampling) -> list[list[Completion]]:
        """Completions [P][samples], the same for the same policy, prompts and `sampling`."""

    def resume(
        self, requests: Sequence[Request], sampling: Sampling, until: Until | None = None
    ) -> list[Completion]:
        """What each request adds; of `sampling`, all but its counts and its seed hold.

        `until` is told the places of the requests that are done, and stops the rest when it says
        so; they come back as far as they got, truncated. Then the first requests are begun first.
        """

    def logps(self, prompts: Sequence[str], responses: Sequence[str]) -> list[list[float]]:
        """Log-probs in nats of each response's tokens, the end-of-turn token included."""


def transformers_engine(policy: Any, *, batch: int = 512) -> Engine:
    """Decode with the policy's own model in this process, at most `batch` rows at once."""
    from posttrain.engines.transformers import TransformersEngine

    return TransformersEngine(policy, batch=batch)


def vllm_engine(
    policy: Any,
    *,
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.5,
    kv_cache_gib: Annotated[float | None, Field(gt=0)] = None,
    max_model_len: Annotated[int | None, Field(ge=2)] = None,
    batch: Annotated[int, Field(ge=1)] = 256,
    dtype: Literal["policy", "float32", "bfloat16", "float16"] = "policy",
    enforce_eager: bool = True,
    sleep: bool = False,
    tolerance: Annotated[float | None, Field(gt=0)] = None,
) -> Engine:
    """Decode with vLLM in this process; it takes over the policy's weights whenever they change.

    `kv_cache_gib`: memory for keys and values; without it 1 GiB on a CPU, and on a GPU what
    `gpu_memory_utilization`, a share of its memory, leaves. `max_model_len`: tokens of a prompt and
    its response together, the model's own limit without it. `dtype`: vLLM's, by default the
    policy's. `enforce_eager: false` compiles: a minute more at the start, faster on a GPU.
    `sleep`: give the GPU's memory back between calls. `tolerance`: nats by which log-probs of a
    probe may differ from the policy's, by default 0.001 on a CPU in float32 and 0.5 elsewhere.
    """
    if find_spec("vllm") is None:
        raise ConfigError(
            Fault(
                "vLLM is not installed",
                "engine: vllm",
                f"{sys.prefix} does not hold it; it has an environment of its own, .venv-vllm",
                "run `sh scripts/setup_vllm.sh`, then `.venv-vllm/bin/posttrain ...`; "
                "or choose `engine: transformers`",
            )
        )
    from posttrain.engines.vllm import VLLMEngine

    return VLLMEngine(
        policy,
        gpu_memory_utilization=gpu_memory_utilization,
        kv_cache_gib=kv_cache_gib,
        max_model_len=max_model_len,
        batch=batch,
        dtype=dtype,
        enforce_eager=enforce_eager,
        sleep=sleep,
        tolerance=tolerance,
    )


def vllm_server_engine(
    policy: Any,
    *,
    url: Annotated[str, Field(pattern=r"^https?://[^/\s]+")],
    model: str | None = None,
    timeout_seconds: Annotated[float, Field(gt=0)] = 600.0,
    retries: Annotated[int, Field(ge=0)] = 3,
    concurrency: Annotated[int, Field(ge=1)] = 64,
    tolerance: Annotated[float, Field(gt=0)] = 0.05,
) -> Engine:
    """Ask a vLLM server that was started on the policy's folder; it must hold the same weights.

    `url`: such as http://127.0.0.1:8000. `model`: by the name that it is served under, the first
    one without it. `timeout_seconds`: for an answer, each of `retries` + 1 times. `concurrency`:
    requests at once. `tolerance`: nats by which log-probs of a probe may differ from the policy's;
    0.001 does for a server started with `--dtype float32`, bfloat16 may take 0.5.
    """
    from posttrain.engines.server import Server
    from posttrain.engines.vllm_server import ServedEngine

    server = Server(url.rstrip("/"), timeout_seconds, retries)
    return ServedEngine(policy, server, model=model, concurrency=concurrency, tolerance=tolerance)


ENGINES: dict[str, Callable[..., Engine]] = {
    "transformers": transformers_engine,
    "vllm": vllm_engine,
    "vllm_server": vllm_server_engine,
}
