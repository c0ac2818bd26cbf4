"""The client of a vLLM server, against a small server that speaks as vLLM does."""

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.engines import ENGINES, Engine, Request, Sampling
from posttrain.engines import server as client
from posttrain.engines.transformers import TransformersEngine
from posttrain.errors import ConfigError, DataError, TransientError
from posttrain.plugins import Plugin, build
from posttrain.policies import Policy, load_policy

PROMPTS = ["2 + 3?", "What is 7 * 8?"]


class SmallServer(ThreadingHTTPServer):
    """Serves a policy; `refusals` are HTTP codes to answer with first, `told` what was asked,
    `breaks` the streams to cut off, and a `plain` one tells no token ids."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.policy = policy
        self.refusals: list[int] = []
        self.told: list[dict[str, Any]] = []
        self.breaks = 0
        self.plain = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answers(BaseHTTPRequestHandler):
    server: SmallServer

    def log_message(self, *_: Any) -> None:
        """Keep the test's output quiet."""

    def do_GET(self) -> None:
        self.reply({"data": [{"id": "served"}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.told.append(asked)
        if self.server.refusals:
            self.send_error(self.server.refusals.pop(0), "not now")
        elif asked.get("prompt_logprobs") == 0:
            self.reply({"choices": [{"prompt_logprobs": self.measured(asked["prompt"])}]})
        elif asked["stream"]:
            self.send_response(200)
            self.end_headers()
            # The client may go away before the end.
            with suppress(ConnectionError):
                self.stream(asked)
        else:
            tokens, logps = zip(*self.drawn(asked), strict=True)
            self.reply(self.part([*tokens], [*logps]))

    def stream(self, asked: dict[str, Any]) -> None:
        for token, logp in self.drawn(asked):
            if self.server.breaks:
                self.server.breaks -= 1
                return
            part = json.dumps(self.part([token], [logp]))
            self.wfile.write(f"data: {part}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def part(self, tokens: list[int], logps: list[float]) -> dict[str, Any]:
        ids = None if self.server.plain else tokens
        return {"choices": [{"token_ids": ids, "logprobs": {"token_logprobs": logps}}]}

    def reply(self, answer: dict[str, Any]) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def scores(self, ids: list[int]) -> torch.Tensor:
        with torch.no_grad():
            logits_TV: torch.Tensor = self.server.policy.model(torch.tensor([ids])).logits[0]
        return logits_TV

    def measured(self, ids: list[int]) -> list[Any]:
        logp_TV = self.scores(ids).log_softmax(-1).tolist()
        steps = zip(ids[1:], logp_TV, strict=False)
        return [None, *({str(token): {"logprob": logp_V[token]}} for token, logp_V in steps)]

    def drawn(self, asked: dict[str, Any]) -> Iterator[tuple[int, float]]:
        ids = list(asked["prompt"])
        generator = torch.Generator().manual_seed(asked["seed"])
        temperature = asked["temperature"]
        for _ in range(asked["max_tokens"]):
            logits_V = self.scores(ids)[-1]
            if temperature:
                chances_V = (logits_V / temperature).softmax(-1)
                token = int(chances_V.multinomial(1, generator=generator))
            else:
                token = int(logits_V.argmax())
            ids.append(token)
            yield token, logits_V.log_softmax(-1)[token].item()
            if token in asked["stop_token_ids"]:
                return


@pytest.fixture
def policy(tiny_policy: Path) -> Policy:
    return load_policy(tiny_policy)


@pytest.fixture
def server(tiny_policy: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallServer]:
    monkeypatch.setattr(client, "FIRST_WAIT_SECONDS", 0.01)
    with SmallServer(load_policy(tiny_policy)) as served:
        thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield served
        served.shutdown()
        thread.join()


def engine_of(policy: Policy, server: SmallServer, **options: Any) -> Engine:
    chosen = Plugin(name="vllm_server", options={"url": server.url, "tolerance": 1e-3} | options)
    return build(ENGINES, chosen)(policy)


def test_greedy_and_likelihoods_are_the_policys(policy: Policy, server: SmallServer) -> None:
    engine, own = engine_of(policy, server), TransformersEngine(policy)
    greedy = Sampling(temperature=0.0, max_new_tokens=6)
    found, expected = engine.generate(PROMPTS, greedy), own.generate(PROMPTS, greedy)
    for (mine,), (theirs,) in zip(found, expected, strict=True):
        assert (mine.tokens, mine.text, mine.truncated) == theirs[:2][::-1] + theirs[3:]
        assert mine.logps == pytest.approx(theirs.logps, abs=1e-4)
    responses = ["5", "7 * 8 = 56"]
    for mine_T, theirs_T in zip(
        engine.logps(PROMPTS, responses), own.logps(PROMPTS, responses), strict=True
    ):
        assert mine_T == pytest.approx(theirs_T, abs=1e-4)


@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_logps_are_at_the_sampling_temperature(
    policy: Policy, server: SmallServer, temperature: float
) -> None:
    sampling = Sampling(samples=2, temperature=temperature, max_new_tokens=5, seed=3)
    engine = engine_of(policy, server)
    found = engine.generate(PROMPTS, sampling)
    assert engine.generate(PROMPTS, sampling) == found
    assert found[0][0].tokens != found[0][1].tokens
    own = TransformersEngine(policy)
    for prompt, group in zip(PROMPTS, found, strict=True):
        for completion in group:
            for at, (token, logp) in enumerate(
                zip(completion.tokens, completion.logps, strict=True)
            ):
                begun = Request(prompt, 0, 1, completion.tokens[:at])
                logits_V = next_logits(own, begun)
                assert (logits_V / temperature).log_softmax(-1)[token].item() == pytest.approx(
                    logp, abs=1e-4
                )


def next_logits(own: TransformersEngine, request: Request) -> torch.Tensor:
    from posttrain.engines.pieces import resumed_pieces

    (piece,) = resumed_pieces(own.policy, [request])
    with torch.no_grad():
        logits_TV: torch.Tensor = own.policy.model(torch.tensor([[*piece.prefix]])).logits[0]
    return logits_TV[-1]


def test_stop_tokens_end_a_piece(policy: Policy, server: SmallServer) -> None:
    stop = tuple(range(0, len(policy.tokenizer), 4))
    requests = [Request("2 + 3?", seed, 12) for seed in range(6)]
    found = engine_of(policy, server).resume(requests, Sampling(stop=stop))
    assert any(not c.truncated for c in found)
    for completion in found:
        assert completion.truncated == (completion.tokens[-1] % 4 != 0)
        assert all(token % 4 for token in completion.tokens[:-1])


def test_until_stops_the_rest_where_they_are(policy: Policy, server: SmallServer) -> None:
    requests = [Request("2 + 3?", 0, 2), *(Request("2 + 3?", seed, 400) for seed in (1, 2))]
    told: list[list[int]] = []

    def enough(done: Any) -> bool:
        told.append(list(done))
        return True

    short, *rest = engine_of(policy, server).resume(requests, Sampling(), enough)
    assert told == [[0]]
    assert len(short.tokens) == 2
    assert all(c.truncated and len(c.tokens) < 400 for c in rest)


def test_a_busy_server_is_asked_again(policy: Policy, server: SmallServer) -> None:
    server.refusals = [503, 429]
    engine = engine_of(policy, server, retries=2)
    assert engine.logps(["a"], ["b"])
    server.breaks = 1
    (found,) = engine.resume([Request("a", 0, 3)], Sampling(), lambda done: False)
    assert len(found.tokens) == 3
    server.refusals = [503] * 3
    with pytest.raises(TransientError, match=r"asked 3 times; the last time: HTTP 503"):
        engine.logps(["a"], ["b"])


def test_a_refusal_is_told_at_once(policy: Policy, server: SmallServer) -> None:
    server.refusals = [400]
    with pytest.raises(ConfigError, match=r"refused\n.*\n.*HTTP 400"):
        engine_of(policy, server).logps(["a"], ["b"])
    assert len(server.told) == 1


def test_a_server_that_is_away(policy: Policy, server: SmallServer) -> None:
    engine = engine_of(policy, server, url="http://127.0.0.1:1", retries=1)
    with pytest.raises(TransientError, match="refused"):
        engine.generate(["a"], Sampling())


def test_a_server_that_hides_its_token_ids(policy: Policy, server: SmallServer) -> None:
    server.plain = True
    with pytest.raises(ConfigError, match="does not tell token ids"):
        engine_of(policy, server).generate(["a"], Sampling(max_new_tokens=2))


def test_other_weights_are_refused(policy: Policy, server: SmallServer) -> None:
    engine = engine_of(policy, server)
    assert engine.logps(["a"], ["b"])
    with torch.no_grad():
        policy.model.lm_head.weight.mul_(1.5)
    with pytest.raises(DataError, match="was trained since"):
        engine.logps(["a"], ["b"])
    with pytest.raises(DataError, match=r"nats, 0\.001 are allowed; it serves another model"):
        engine_of(policy, server).logps(["a"], ["b"])


@pytest.mark.parametrize(
    "options", [{}, {"url": "127.0.0.1:8000"}, {"url": "http://a", "retry": 1}]
)
def test_bad_options_fail_before_anything_is_asked(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        build(ENGINES, Plugin(name="vllm_server", options=options))
