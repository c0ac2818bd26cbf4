"""vLLM in a training run, and behind a server. Runs where vLLM is: `.venv-vllm/bin/python`."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import EMBEDDED
from tests.engines.on_vllm import (
    PROMPTS,
    SMALL,
    TOLERANCE,
    assert_same_likelihoods,
    assert_stopped,
    fresh_logps,
    needs_vllm,
    take_step,
)

from posttrain.artifacts import write_rows
from posttrain.engines import ENGINES, Request, Sampling
from posttrain.engines.transformers import TransformersEngine
from posttrain.errors import ConfigError, DataError
from posttrain.journal import Journal, read_curves
from posttrain.plugins import Plugin, build
from posttrain.policies import Policy, load_policy
from posttrain.records import Prompt, content_id
from posttrain.rewards import REWARDS
from posttrain.rl.config import RLConfig
from posttrain.rl.rollout import Rollout
from posttrain.rl.stage import run


@needs_vllm
@pytest.mark.vllm
@pytest.mark.parametrize("options", [{}, {"lora_rank": 2}])
def test_rl_trains_on_what_vllm_draws(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def low_tokens(rollouts: Sequence[Rollout], _judge: object, /) -> list[float]:
        return [sum(t < 384 for t in r.tokens) / len(r.tokens) for r in rollouts]

    monkeypatch.setitem(REWARDS, "low_tokens", low_tokens)
    texts = ["2 + 3?", "7 + 12?", "31 - 4?"]
    rows = [
        Prompt(id=content_id("arithmetic", t), text=t, answer="5", task="arithmetic", source="test")
        for t in texts
    ]
    write_rows(tmp_path / "prompts", rows)
    settings = {
        "engine": {"name": "vllm", **SMALL},
        "steps": 3,
        "prompts_per_step": 3,
        "max_new_tokens": 24,
        "learning_rate": 1e-3,
        "max_mismatch": TOLERANCE,
        "rewards": ["low_tokens"],
    }
    config = RLConfig.model_validate(settings | options)
    journal = Journal(tmp_path / "journal")
    places = {"policy": EMBEDDED, "prompts": tmp_path / "prompts", "trained": tmp_path / "trained"}
    report = run(config, **places, journal=journal)
    assert report.used > 0
    curves = list(read_curves(tmp_path / "journal/curves.jsonl"))
    assert len([point for point in curves if point.name == "mismatch/mean"]) == 3
    trained = load_policy(tmp_path / "trained").model.state_dict()
    started = load_policy(EMBEDDED).model.state_dict()
    assert max(float((trained[k] - started[k]).abs().max()) for k in started) > 1e-3


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real server on the embedded policy."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("vllm") / "server.log"
    options = {"model": EMBEDDED, "host": "127.0.0.1", "port": port, "dtype": "float32"}
    more = [
        "--enforce-eager",
        "--no-enable-chunked-prefill",
        "--max-model-len",
        "256",
        "--kv-cache-memory-bytes",
        str(2**27),
    ]
    asked = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *asked, *more]
    settings = {"HF_HUB_OFFLINE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    own = {name: v for name, v in os.environ.items() if name != "VLLM_ENABLE_V1_MULTIPROCESSING"}
    with log.open("w") as out:
        server = subprocess.Popen(command, env=own | settings, stdout=out, stderr=out)
        try:
            wait_for(f"http://127.0.0.1:{port}/health", server, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(30)


def wait_for(url: str, server: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    pytest.fail(log.read_text()[-3000:])


@needs_vllm
@pytest.mark.vllm
@pytest.mark.slow
def test_a_served_policy(url: str, policy: Policy) -> None:
    served = build(ENGINES, Plugin(name="vllm_server", options={"url": url, "tolerance": 1e-3}))
    engine = served(policy)
    assert_same_likelihoods(policy, engine)
    greedy = Sampling(temperature=0.0, max_new_tokens=16)
    own = TransformersEngine(policy)
    for (mine,), (theirs,) in zip(
        engine.generate(PROMPTS, greedy), own.generate(PROMPTS, greedy), strict=True
    ):
        assert mine._replace(logps=()) == theirs._replace(logps=())
    sampling = Sampling(samples=2, temperature=0.7, top_p=0.9, max_new_tokens=8, seed=2)
    found = engine.generate(PROMPTS, sampling)
    assert [[c.tokens for c in group] for group in engine.generate(PROMPTS, sampling)] == [
        [c.tokens for c in group] for group in found
    ]
    for prompt, group in zip(PROMPTS, found, strict=True):
        for completion in group:
            expected = fresh_logps(policy, prompt, completion.tokens, 0.7)
            assert list(completion.logps) == pytest.approx(expected, abs=TOLERANCE)
    rooms, told = [2, 20, 230], list[list[int]]()

    def enough(done: Any) -> bool:
        told.append(list(done))
        return len(done) == 2

    requests = [Request("a", 1, room, written=(700, 701)) for room in rooms]
    assert_stopped(engine.resume(requests, Sampling(temperature=2.0), enough), told, rooms)
    with pytest.raises(ConfigError, match="HTTP 400"):
        engine.generate(["1 " * 400], Sampling(max_new_tokens=1))
    take_step(policy)
    with pytest.raises(DataError, match="was trained since"):
        engine.logps(["a"], ["b"])
    with pytest.raises(DataError, match="serves another model"):
        served(policy).logps(["a"], ["b"])
