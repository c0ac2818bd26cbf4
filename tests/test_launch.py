"""The launcher: quiet, one line a task, the failed task's exit code, no orphans."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from posttrain.errors import ConfigError
from posttrain.launch import graph_named, launch

ROOT = Path(__file__).parents[1]

GRAPH = """
from kfp import dsl
from components.raw.component import raw

@dsl.component(base_image="python", install_kfp_package=False)
def killed():
    import os
    os.kill(os.getpid(), 9)

@dsl.pipeline(name="tiny")
def tiny(recipe: str = "", seed: int = 0, overrides: str = ""):
    raw(recipe=recipe, seed=seed, overrides=overrides)

@dsl.pipeline(name="fatal")
def fatal(recipe: str = "", seed: int = 0, overrides: str = ""):
    killed()
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A checkout whose graphs have one task each."""
    folder = tmp_path / "repository/pipelines"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "tiny.py").write_text(GRAPH, encoding="utf-8")
    (folder / "fatal.py").write_text("from pipelines.tiny import fatal\n", encoding="utf-8")
    return folder.parent


def launched(repository: Path, graph: str, recipe: str) -> subprocess.CompletedProcess[str]:
    """Launch in a process of its own, as `posttrain run` does."""
    script = f"""
    import sys
    from pathlib import Path
    from posttrain.launch import launch
    sys.exit(launch({recipe!r}, Path("run"), 0, "", Path("store"), {graph!r}))
    """
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(script)],
        cwd=repository,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_a_task_a_line_and_the_next_launch_repeats_nothing(repository: Path) -> None:
    first = launched(repository, "tiny", "demo")
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("raw: done in")
    assert first.stderr == ""
    again = launched(repository, "tiny", "demo")
    assert again.stdout.startswith("raw: cached in")
    assert len(list((repository / "run/kfp").glob("tiny-*"))) == 1
    assert "Executing task" in (repository / "run/kfp.log").read_text(encoding="utf-8")


def test_the_failed_task_gives_exit_code_and_message(repository: Path) -> None:
    done = launched(repository, "tiny", "absent")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "unknown recipe `absent`" in done.stderr
    assert "raw failed with exit code 2" in done.stderr


def test_a_killed_task_may_be_run_again(repository: Path) -> None:
    done = launched(repository, "fatal", "")
    assert done.returncode == 75
    assert "run again to go on" in done.stderr


def test_a_task_stops_when_its_launcher_is_gone() -> None:
    script = (
        "import os, threading, time; from posttrain.kubeflow import stop_without\n"
        "threading.Thread(target=stop_without, args=(os.dup(1),), daemon=True).start()\n"
        "print('up', flush=True); time.sleep(60)"
    )
    task = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert task.stdout
    assert task.stdout.readline() == b"up\n"
    assert task.poll() is None
    task.stdout.close()
    assert task.wait(timeout=20) == 75


def test_a_graph_needs_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="run inside a checkout"):
        launch("demo", tmp_path / "run", 0, "", tmp_path / "store")
    assert not (tmp_path / "run").exists()
    monkeypatch.chdir(ROOT)
    with pytest.raises(ConfigError, match="did you mean `posttraining`"):
        graph_named("posttrianing")
