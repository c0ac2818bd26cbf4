"""A stage that outgrows the memory of its container is killed there, and goes on in the next."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from posttrain.artifacts import content_files, write_rows
from posttrain.records import Prompt

ROOT = Path(__file__).parents[2]
OUT_OF_MEMORY = 137
SCRIPT = """
import sys
from pathlib import Path
from tests.crash.faults import Fault, inject
inject(Fault("exhaust", "progress", int(sys.argv[1])), Path("/home7"))
from posttrain.cli import main
sys.exit(main(sys.argv[2:]))
"""
RESTRICTED = (
    *("--network", "none", "--read-only", "--tmpfs", "/tmp", "--user", "1000:1000"),
    *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
    *("--memory", "1500m", "--memory-swap", "1500m"),
)


def docker(*given: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["docker", *given], capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.container
@pytest.mark.slow
def test_out_of_memory_in_the_middle_of_drawing(
    image: str, tiny_policy: Path, tmp_path: Path, seal: Callable[[Path, str], object]
) -> None:
    about = {"task": "arithmetic", "source": "t"}
    rows = [Prompt(id=f"p{i}", text=f"{i} + 1?", answer=str(i + 1), **about) for i in range(4)]
    write_rows(tmp_path / "prompts", rows)
    seal(tmp_path / "prompts", "Prompt")
    options = {"best_of_n": {"chunk": 1, "n_max": 2, "max_new_tokens": 6, "resamples": 100}}

    def run(home: Path, exhausted_at: int) -> "subprocess.CompletedProcess[str]":
        home.mkdir(exist_ok=True)
        home.chmod(0o777)
        mounts = [f"{home}:/home7", f"{tmp_path / 'prompts'}:/prompts:ro"]
        mounts += [f"{tiny_policy}:/policy:ro", f"{ROOT / 'tests'}:/code/tests:ro"]
        command = ["run", "--rm", *RESTRICTED, *(f"--volume={mount}" for mount in mounts)]
        command += ["--env", "PYTHONPATH=/code", "--env", "OMP_NUM_THREADS=1"]
        command += ["--workdir", "/tmp", "--entrypoint", "python", image, "-c", SCRIPT]
        command += [str(exhausted_at), "best_of_n", "--policy", "/policy"]
        command += ["--evaluation", "/prompts", "--scores", "/home7/out/scores"]
        command += ["--store", "/home7/store", "--run-folder", "/home7/run", "--tracking", "off"]
        return docker(*command, "--overrides", json.dumps(options))

    # The container's user is another; safetensors writes files that their owner alone may read.
    given = [tiny_policy, *tiny_policy.rglob("*"), tmp_path / "prompts"]
    for path in (*given, *tmp_path.parents[:3]):
        path.chmod(path.stat().st_mode | 0o055)
    torn, whole = tmp_path / "torn", tmp_path / "whole"
    killed = run(torn, 2)
    assert killed.returncode == OUT_OF_MEMORY, killed.stderr[-3000:]
    assert not (torn / "out" / "scores").exists()
    assert len([*torn.rglob("samples-*.jsonl")]) == 2
    for home in (torn, whole):
        done = run(home, 0)
        assert done.returncode == 0, done.stderr[-3000:]
    assert content_files(torn / "out" / "scores") == content_files(whole / "out" / "scores")
