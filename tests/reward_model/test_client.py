"""A judge behind a server, against a real one that misbehaves on purpose."""

import json
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from posttrain.artifacts import write_rows
from posttrain.engines import server as transport
from posttrain.errors import ConfigError
from posttrain.journal import Journal
from posttrain.plugins import Plugin, build
from posttrain.records import Preference, content_id
from posttrain.reward_model import client
from posttrain.reward_model.costs import costs_of, parse_failures
from posttrain.reward_model.kinds import KINDS
from posttrain.reward_model.loading import load_judge
from posttrain.reward_model.stage import (
    RewardModelConfig,
    RewardModelReport,
    preflight,
    run,
    still_holds,
)

Answer = Callable[["Answers", dict[str, Any]], None]


class ChatServer(ThreadingHTTPServer):
    """Answers each question by `script`'s next entry, and by `otherwise` when they are used up."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.script: list[Answer] = []
        self.otherwise: Answer = says("Overall: \\boxed{7.5}")
        self.told: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answers(BaseHTTPRequestHandler):
    server: ChatServer

    def log_message(self, *_: Any) -> None:
        """Keep the test's output quiet."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.told.append(asked | {"path": self.path})
            self.server.keys.append(self.headers["Authorization"])
            self.server.at_once += 1
            self.server.most_at_once = max(self.server.most_at_once, self.server.at_once)
            answer = self.server.script.pop(0) if self.server.script else self.server.otherwise
        # The client may hang up on what it does not like.
        with suppress(ConnectionError):
            answer(self, asked)
        with self.server.lock:
            self.server.at_once -= 1

    def raw(self, body: bytes, code: int = 200, **headers: str) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)


def says(text: str, ended: str = "stop", **usage: Any) -> Answer:
    """A chat completion."""
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": ended}
    body = json.dumps({"choices": [choice], "usage": usage or None}).encode()
    return lambda handler, _: handler.raw(body)


def raw(body: bytes, code: int = 200, **headers: str) -> Answer:
    return lambda handler, _: handler.raw(body, code, **headers)


def drips(handler: Answers, _: dict[str, Any]) -> None:
    """A byte now and then, for ever."""
    handler.send_response(200)
    handler.end_headers()
    for _ in range(40):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.05)


def by_response(handler: Answers, asked: dict[str, Any]) -> None:
    """A judge that likes `good`, pointwise, pairwise and by criteria, and each place equally."""
    question = asked["messages"][0]["content"]
    if "Response 1" in question:
        first, second = question.split("[Start of Response 2]")
        scores = [8 if "good" in part else 2 for part in (first, second)]
        text = f"Scores: \\boxed{{{scores[0]}}} \\boxed{{{scores[1]}}}"
    elif "[Start of Response]" not in question:
        text = "[Start of Criteria]\n1. kindness\n[End of Criteria]"
    else:
        text = f"Overall: \\boxed{{{8 if 'good' in question else 2}}}"
    says(text, prompt_tokens=100, completion_tokens=10)(handler, asked)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    monkeypatch.setattr(transport, "FIRST_WAIT_SECONDS", 0.01)
    with ChatServer() as served:
        thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield served
        served.shutdown()
        thread.join()


def judge_of(server: ChatServer | None, **options: Any) -> Any:
    given = {"url": server.url if server else "http://127.0.0.1:1", "model": "m", "cache": ""}
    return build(KINDS, Plugin(name="server", options=given | options))().read(Path())


def one(judge: Any, response: str = "yes") -> float:
    [score] = judge.score(["How?"], [response])
    return float(score)


def test_a_score_and_what_it_cost(server: ChatServer) -> None:
    server.otherwise = says("so\n\nOverall: \\boxed{7.5}", prompt_tokens=200, completion_tokens=30)
    judge = judge_of(server, prompt_price=2.0, completion_price=10.0, concurrency=1)
    assert judge.score(["How?", "Why?", "How?"], ["a", "b", "a"]) == [7.5, 7.5, 7.5]
    asked = server.told[0]
    assert (asked["path"], asked["model"], asked["temperature"]) == (client.PATH, "m", 0.0)
    assert "How?" in asked["messages"][0]["content"]
    # Equal questions are one: 2 * 200 * 2 + 2 * 30 * 10 millionths.
    expected = {"requests": 2, "prompt_tokens": 400, "completion_tokens": 60, "cost_micros": 1400}
    assert costs_of(judge) == expected | {"asked": 3}


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (raw(b"{not json"), "malformed"),
        (raw(b"[" * 1999), "malformed"),
        (raw(b"null"), "malformed"),
        (raw(b'{"choices": []}'), "malformed"),
        (raw(b'{"choices": [{"message": {"content": null}}]}'), "malformed"),
        (raw(b'{"choices": [3]}'), "malformed"),
        (raw(b"x" * 5000), "huge"),
        (raw(b"", 503), "busy"),
        (raw(b"", 429, Retry_After="0"), "busy"),
        (raw(b"no such model", 404), "refused"),
        (raw(b"", 302, Location="http://127.0.0.1:1/"), "refused"),
        (lambda handler, _: handler.connection.close(), "away"),
        (drips, "away"),
        (says("Overall: \\boxed{7.5}", "length"), "truncated"),
        (says("Kindness: \\boxed{4}"), "unparsed"),
        (says("Overall: \\boxed{NaN}"), "unparsed"),
        (says("Overall: \\boxed{11}"), "unparsed"),
        (says("Overall: \\boxed{7.25}"), "unparsed"),
        (says("Overall: \\boxed{7} or 8"), "unparsed"),
        (says(""), "unparsed"),
    ],
)
def test_whatever_it_answers_is_counted(server: ChatServer, answer: Answer, outcome: str) -> None:
    server.otherwise = answer
    judge = judge_of(server, retries=1, timeout_seconds=0.3, most_bytes=2000)
    assert math.isnan(one(judge))
    costs = costs_of(judge)
    assert costs[outcome] == 1, costs
    assert parse_failures(costs) == {"unread_share": 1.0}
    server.otherwise = says("Overall: \\boxed{1}")
    assert one(judge, "another") == 1.0


def test_a_busy_server_is_asked_again_as_it_asks(server: ChatServer) -> None:
    server.script = [raw(b"", 429, Retry_After="1"), raw(b"{", 200)]
    began = time.monotonic()
    assert one(judge_of(server, retries=2)) == 7.5
    assert time.monotonic() - began > 1.0
    assert len(server.told) == 3


def test_a_server_that_is_away_is_not_asked_for_ever() -> None:
    judge = judge_of(None, retries=0, concurrency=1)
    scores = judge.score([f"{n}?" for n in range(20)], ["a"] * 20)
    assert all(map(math.isnan, scores))
    costs = costs_of(judge)
    assert (costs["away"], costs["given_up"]) == (client.PATIENCE, 20 - client.PATIENCE)
    assert math.isnan(one(judge))
    assert costs_of(judge)["away"] == client.PATIENCE + 1


def test_answers_are_kept_by_all_that_was_sent(server: ChatServer, tmp_path: Path) -> None:
    given = {"cache": str(tmp_path / "cache")}
    assert one(judge_of(server, **given)) == 7.5
    again = judge_of(server, **given)
    assert one(again) == 7.5
    assert (len(server.told), costs_of(again)) == (1, {"cache_hits": 1, "asked": 1})
    for other in ({"model": "n"}, {"temperature": 0.5}, {"max_tokens": 9}):
        one(judge_of(server, **given, **other))
    one(judge_of(server, **given), "another response")
    assert len(server.told) == 5
    for path in (tmp_path / "cache").rglob("*.json"):
        path.write_text('["half an ans', encoding="utf-8")
    assert one(judge_of(server, **given)) == 7.5
    assert len(server.told) == 6


def test_failures_are_not_kept(server: ChatServer, tmp_path: Path) -> None:
    server.script = [raw(b"no", 400)]
    judge = judge_of(server, cache=str(tmp_path / "cache"))
    assert math.isnan(one(judge))
    assert one(judge) == 7.5


def test_a_cache_that_cannot_be_written_costs_no_answer(server: ChatServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert one(judge_of(server, cache=str(tmp_path / "file"))) == 7.5


def test_so_many_at_once(server: ChatServer) -> None:
    def slow(handler: Answers, asked: dict[str, Any]) -> None:
        time.sleep(0.05)
        says("Overall: \\boxed{7}")(handler, asked)

    server.otherwise = slow
    scores = judge_of(server, concurrency=3).score([f"{n}?" for n in range(9)], ["a"] * 9)
    assert scores == [7.0] * 9
    assert 1 < server.most_at_once <= 3


def test_the_key_is_sent_and_kept_nowhere(
    server: ChatServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("JUDGE_KEY", "s3cret")
    server.script = [raw(b"bad key s3cret", 401)]
    judge = judge_of(server, key_variable="JUDGE_KEY", cache=str(tmp_path / "cache"))
    with caplog.at_level(logging.DEBUG):
        assert math.isnan(one(judge))
        assert one(judge) == 7.5
    assert server.keys == ["Bearer s3cret"] * 2
    assert "bad key ***" in caplog.text
    kept = [path.read_text() for path in (tmp_path / "cache").rglob("*.json")]
    assert len(kept) == 1
    assert "s3cret" not in f"{caplog.text}{kept}{judge.writer.server}"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"model": ""},
        {"url": "ftp://a"},
        {"url": "http://user:word@host"},
        {"key_variable": "sk-1234"},
        {"key_variable": "NO_SUCH_KEY"},
        {"form": "listwise"},
    ],
)
def test_a_mistake_in_the_options_fails_before_anything_is_asked(options: dict[str, Any]) -> None:
    given = {"url": "http://127.0.0.1:1", "model": "m"} | options if options else {}
    config = RewardModelConfig(kind=Plugin(name="server", options=given))
    assert list(preflight(config))
    with pytest.raises(ConfigError):
        build(KINDS, config.kind)()


@pytest.fixture
def preferences(tmp_path: Path) -> Path:
    rows = [
        Preference(
            id=str(n),
            prompt_id=content_id(str(n)),
            prompt=f"Say {n}",
            chosen="a good word" if n % 2 else "good",
            rejected="bad" if n % 2 else "such bad words",
            source="test",
        )
        for n in range(24)
    ]
    write_rows(tmp_path / "preferences", rows)
    return tmp_path / "preferences"


def made(kind: dict[str, Any], policy: Path, preferences: Path, root: Path) -> RewardModelReport:
    config = RewardModelConfig.model_validate({"kind": kind, "eval_share": 0.5, "max_ece": 0.5})
    ports = {"policy": policy, "preferences": preferences, "judge": root / "judge"}
    return run(config, **ports, journal=Journal(root / "journal"))


@pytest.mark.parametrize("form", ["pointwise", "pairwise", "criteria"])
def test_every_form_through_the_stage(
    form: str, server: ChatServer, tiny_policy: Path, preferences: Path, tmp_path: Path
) -> None:
    server.otherwise = by_response
    cache = str(tmp_path / "cache")
    kind = {"name": "server", "url": f"{server.url}/v1/", "model": "m", "form": form}
    kind |= {"cache": cache, "prompt_price": 1.0}
    report = made(kind, tiny_policy, preferences, tmp_path)
    assert report.panel.passed, report.panel.reasons
    assert report.panel.held_out.accuracy == 1.0
    assert (report.panel.swap is not None) == (form == "pairwise")
    if report.panel.swap:
        assert (report.panel.swap.flips, report.panel.swap.first_wins) == (0.0, 0.5)
    numbers = report.numbers
    assert numbers["requests"] == len(server.told)
    assert numbers["cache_hits"] > 0 == numbers["unread_share"]
    assert numbers["cost_micros"] == numbers["prompt_tokens"] == 100 * len(server.told)
    judge = load_judge(tmp_path / "judge")
    good, bad = judge.score(["Say 9"] * 2, ["good", "bad"])
    assert good > bad


def test_a_judge_that_is_offline_fails_its_panel_and_nothing_else(
    tiny_policy: Path, preferences: Path, tmp_path: Path
) -> None:
    for form in ("pointwise", "pairwise"):
        kind = {"name": "server", "url": "http://127.0.0.1:1", "model": "m", "form": form}
        kind |= {"retries": 0, "cache": ""}
        report = made(kind, tiny_policy, preferences, tmp_path / form)
        assert not report.panel.passed
        assert report.panel.unscored == report.panel.held_out.pairs > 0
        assert report.numbers["unread_share"] == 1.0
        config = RewardModelConfig.model_validate({"kind": kind})
        stored = {"judge": tmp_path / form / "judge"}
        assert still_holds(stored, config) == "the judge's server left pairs without a score"
