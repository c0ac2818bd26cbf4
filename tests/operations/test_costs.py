"""The account of a run, its prices and its budget."""

import json
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from posttrain import interruption
from posttrain.artifacts import write_json
from posttrain.cli import main
from posttrain.costs import meter
from posttrain.costs.account import by_task, gain, spent
from posttrain.costs.attempts import Attempt, attempts, keep
from posttrain.costs.meter import metered
from posttrain.costs.prices import Prices, read_prices
from posttrain.costs.resources import Resources, seen
from posttrain.costs.tokens import Tokens, judge_money, tokens_of
from posttrain.errors import ConfigError, TransientError

PRICES = Prices(currency="EUR", accelerator_hour={"H200": 3.6}, core_hour=0.36)


def attempt(task: str = "rl", **more: Any) -> Attempt:
    about = {"task": task, "stage": task, "place": "pod-1", "started": 0.0, "updated": 100.0}
    held = {"accelerators": 8, "kind": "NVIDIA H200", "cores": 10.0}
    return Attempt.model_validate({**about, **held, "state": "done"} | more)


def test_an_account_by_hand() -> None:
    """8 x 100 s at 3.6 an hour, 10 x 100 s at 0.36, 5,000 tokens at 0.01, and the judge's own."""
    prices = PRICES.model_copy(update={"server_1k_tokens": 0.01})
    found = [
        attempt(server_tokens=5000, judge_money=0.25, generated_tokens=5000),
        attempt(state="failed", code=75, updated=50.0),
        attempt("sft", state="cached", updated=1.0, saved_seconds=1000.0),
    ]
    rl = by_task(found, prices)["rl"]
    assert (rl.attempts, rl.seconds, rl.accelerator_seconds) == (2, 150.0, 1200.0)
    assert rl.money == pytest.approx((0.8 + 0.1 + 0.05 + 0.25) + (0.4 + 0.05))
    sft = by_task(found, prices)["sft"]
    assert sft.saved_money == pytest.approx(8.0 + 1.0)
    assert sft.money == pytest.approx(0.008 + 0.001)
    assert spent(found, None).money is None
    assert spent([attempt(kind="TPU v9")], prices).unpriced == ["TPU v9"]


def test_the_longest_name_of_a_kind_counts() -> None:
    prices = Prices(accelerator_hour={"a100": 1.0, "A100-SXM4-80GB": 2.0})
    assert prices.accelerator_price("NVIDIA A100-SXM4-80GB") == 2.0
    assert prices.accelerator_price("NVIDIA A100-PCIE-40GB") == 1.0
    assert prices.accelerator_price("NVIDIA L4") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("core_hour: -1", "greater than or equal to 0"),
        ("core_hours: 1", "did you mean `core_hour`?"),
        ("a: [", "not YAML"),
        ("accelerator_hour: {H200: .inf}", "finite"),
    ],
)
def test_a_bad_price_table(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=said.replace("?", r"\?")):
        read_prices(path)


def test_where_prices_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POSTTRAIN_PRICES", raising=False)
    monkeypatch.setenv("POSTTRAIN_STORE", str(tmp_path))
    assert read_prices() is None
    (tmp_path / "prices.yaml").write_text("core_hour: 1", encoding="utf-8")
    assert read_prices() == Prices(core_hour=1)
    monkeypatch.setenv("POSTTRAIN_PRICES", PRICES.model_dump_json())
    assert read_prices() == PRICES
    own = tmp_path / "own.yaml"
    own.write_text("core_hour: 2", encoding="utf-8")
    assert read_prices(own) == Prices(core_hour=2)
    monkeypatch.setenv("POSTTRAIN_PRICES", str(tmp_path / "absent.yaml"))
    with pytest.raises(ConfigError, match="no price table"):
        read_prices()


def test_what_a_container_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev").mkdir(exist_ok=True)
        (tmp_path / "dev" / name).touch()
    about = tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0/information"
    about.parent.mkdir(parents=True)
    about.write_text("Model: \t\t NVIDIA H200\nIRQ: 5\n", encoding="utf-8")
    quota = tmp_path / "sys/fs/cgroup/cpu.max"
    quota.parent.mkdir(parents=True)
    quota.write_text("250000 100000\n", encoding="ascii")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert seen(tmp_path) == Resources(2, "NVIDIA H200", 2.5)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert seen(tmp_path).accelerators == 1
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert seen(tmp_path)[:2] == (0, "")
    monkeypatch.setenv("POSTTRAIN_ACCELERATORS", "8 MI300X")
    monkeypatch.setenv("POSTTRAIN_CORES", "16")
    assert seen(tmp_path) == Resources(8, "MI300X", 16.0)
    quota.write_text("max 100000\n", encoding="ascii")
    monkeypatch.delenv("POSTTRAIN_CORES")
    assert seen(tmp_path).cores >= 1


@pytest.mark.parametrize(
    ("stage", "report", "tokens"),
    [
        ("sft", {"tokens": 70}, Tokens(0, 70)),
        ("reward_model", {"tokens": 70}, Tokens(0, 70)),
        ("rl", {"tokens": 90, "generated": 30, "used": 10}, Tokens(90, 30)),
        ("rl", {"tokens": 0, "generated": 0, "used": 0}, Tokens(0, 0)),
        ("best_of_n", {"tokens": 9}, Tokens(9, 0)),
        ("reject", {"samples": 4, "mean_tokens": 2.5}, Tokens(10, 0)),
        ("benchmark", {"suites": {"a": {"n": 3.0, "samples": 2.0, "tokens": 1.5}}}, Tokens(9, 0)),
        ("gate", {}, Tokens(0, 0)),
    ],
)
def test_tokens_of_a_report(stage: str, report: dict[str, Any], tokens: Tokens) -> None:
    assert tokens_of(stage, report) == tokens


def test_a_judges_own_price() -> None:
    report = {"judge_costs": {"cost_micros": 1500.0}, "counts": {"judge_cost_micros": 500}}
    assert judge_money(report) == pytest.approx(0.002)


def test_what_a_point_cost(tmp_path: Path) -> None:
    ladder = {"base": 0.10, "sft": 0.30, "rl": 0.50}
    report = {"report": {"pass_at_1": ladder, "suite": "arithmetic"}}
    write_json(tmp_path / "stages/report.json", report)
    found = [
        attempt("sft", state="cached", started=99.0, saved_seconds=100.0),
        attempt("rl", state="failed"),
        attempt("rl"),
    ]
    told = gain(tmp_path, found, PRICES)
    assert told
    assert (told.policy, told.start, round(told.points, 6)) == ("rl", "base", 40.0)
    assert told.money == pytest.approx((0.009 + 0.9 + 0.9) / 40)
    assert told.unrestored_money == pytest.approx((0.9 + 0.9) / 40)
    write_json(tmp_path / "stages/report.json", {"report": {"pass_at_1": {}, "suite": ""}})
    assert gain(tmp_path, found, PRICES) is None


KILLED = """
import sys, time
from pathlib import Path
from posttrain.costs import meter
meter.BEAT_SECONDS = 0.05
with meter.metered(Path(sys.argv[1]), "rl", "rl"):
    print("up", flush=True)
    time.sleep(60)
"""


def test_a_killed_process_has_told_of_its_time(tmp_path: Path) -> None:
    script = textwrap.dedent(KILLED)
    argv = [sys.executable, "-c", script, str(tmp_path)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == b"up\n"
    began = time.time()
    while time.time() - began < 1.0 or not attempts(tmp_path)[0].seconds:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    alive = time.time() - began
    (told,) = attempts(tmp_path)
    assert told.state == "working"
    assert told.seconds > alive - 0.7
    assert told.lost(time.time() + 61)


@pytest.fixture
def priced(tmp_path: Path) -> Path:
    path = tmp_path / "prices.yaml"
    path.write_text("currency: EUR\ncore_hour: 3600\n", encoding="utf-8")
    return path


def worked(run: Path, budget: float, prices: Path, seconds: float) -> None:
    """A stage that takes steps of 10 ms and heeds who asks it to stop."""
    account = metered(run, "rl", "rl", budget, prices)
    with interruption.listening(), account, interruption.at_work():
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.01)
            interruption.heed()


def test_a_spent_budget_stops_the_work_and_a_larger_one_goes_on(
    tmp_path: Path, priced: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meter, "BEAT_SECONDS", 0.05)
    monkeypatch.setenv("POSTTRAIN_CORES", "1")
    run = tmp_path / "run"
    with pytest.raises(ConfigError, match="budget spent"):
        worked(run, 0.3, priced, 20.0)
    (first,) = attempts(run)
    assert (first.state, first.code) == ("failed", 2)
    assert 0.3 <= first.seconds < 5.0
    with pytest.raises(ConfigError, match="budget spent"):
        worked(run, 0.3, priced, 20.0)
    assert len(attempts(run)) == 1
    worked(run, 100.0, priced, 0.1)
    assert [a.state for a in attempts(run)] == ["failed", "done"]


def test_other_pods_spend_from_the_same_budget(
    tmp_path: Path, priced: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meter, "BEAT_SECONDS", 0.05)
    monkeypatch.setenv("POSTTRAIN_CORES", "1")
    run = tmp_path / "run"
    other = attempt("sft", state="working", accelerators=0, kind="", cores=1.0, updated=1.0)

    def elsewhere() -> None:
        keep(run, other.model_copy(update={"updated": 500.0}))

    threading.Timer(0.2, elsewhere).start()
    with pytest.raises(ConfigError, match="spent 5"):
        worked(run, 400.0, priced, 20.0)


def test_an_error_of_the_stage_is_in_the_account(tmp_path: Path) -> None:
    with pytest.raises(TransientError), metered(tmp_path, "rl", "rl"):
        raise TransientError
    assert [(a.state, a.code) for a in attempts(tmp_path)] == [("failed", 75)]


def test_the_budget_is_no_part_of_the_key(
    tmp_path: Path, priced: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    argv = ["raw", "--recipe", "smoke", "--rows", str(tmp_path / "rows"), "--tracking", "off"]
    argv += ["--store", str(tmp_path / "store"), "--run-folder", str(run)]
    assert main([*argv, "--run-budget", "3"]) == 2
    assert "without prices" in capsys.readouterr().err
    argv += ["--prices", str(priced)]
    assert main([*argv, "--run-budget", "1000"]) == 0
    assert main([*argv, "--run-budget", "2000"]) == 0
    record = json.loads((run / "stages/raw.json").read_text(encoding="utf-8"))
    assert record["cached"]
    assert record["cost"]["attempts"] == 2
    assert record["cost"]["saved_money"] > 0
    assert main([*argv, "--run-budget", "0.0001"]) == 2
    assert "budget spent" in capsys.readouterr().err
    assert main(["cost", str(run), "--prices", str(priced)]) == 0
    assert "the run" in capsys.readouterr().out
    assert main(["cost", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["money"] is None


def test_a_launch_with_a_budget_needs_prices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--recipe", "smoke", "--budget", "5"]) == 2
    assert "a budget of 5 without prices" in capsys.readouterr().err
