"""What a task costs above the work of its stage.

`python benchmarks/overhead.py` runs chains of 1, 8 and 32 tasks that do nothing: through the
launcher of `posttrain run`, not in the store and then in it; through bare `kfp.local`; and as
commands. Then the compile time of a graph of 100 tasks. Rounds take turns; medians. On a machine
that others use, `--cpu` counts seconds of processors, which tasks that run one after another hardly
outlast on an idle one. `--json FILE` keeps the figures.
"""

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LENGTHS = (1, 8, 32)
CPU = "OVERHEAD_CPU"
QUIET = {"POSTTRAIN_TRACKING": "off", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
IMPORTS = "from posttrain.stages import load_stage; load_stage('judge')"

CHAIN = """
from kfp import dsl
from components.judge.component import judge

@dsl.pipeline(name="chain-{length}")
def chain_{length}(recipe: str = "demo", seed: int = 0, overrides: str = ""):
    last = None
    for number in range({length}):
        step = judge(task="judge", recipe=recipe, seed=number, overrides=overrides)
        last = step.after(last) if last else step
"""
"""A judge that is none: an empty folder is made, sealed and kept. A seed each, so a key each."""


def seconds(work: Callable[[], object]) -> float:
    """How long it takes, by the clock or in the processes of its own."""
    began = clock()
    work()
    return clock() - began


def clock() -> float:
    """Now, or with `--cpu` what this process and its children have used."""
    return sum(os.times()[:4]) if CPU in os.environ else time.perf_counter()


def bare_graph(length: int) -> Callable[[], object]:
    """A chain of components that do nothing, for `kfp.local` without us."""
    from kfp import dsl

    @dsl.component(base_image="python:3.11-slim", install_kfp_package=False)
    def nothing() -> None:
        pass

    @dsl.pipeline(name="bare")
    def bare() -> None:
        last = None
        for _ in range(length):
            step = nothing()
            last = step.after(last) if last else step

    return bare


def chains(length: int, place: Path) -> dict[str, float]:
    """Seconds a task of one chain: bare, through the launcher, and again from the store."""
    from kfp import local

    from posttrain.launch import launch

    def bare() -> None:
        runner = local.SubprocessRunner(use_venv=False)
        local.init(runner=runner, pipeline_root=str(place / "bare"), enable_caching=False)
        graph()

    def launched() -> None:
        code = launch(
            recipe="demo",
            run_folder=place / "run",
            seed=0,
            overrides="",
            store=place / "store",
            pipeline=f"chain_{length}",
        )
        assert code == 0, code

    graph, found = bare_graph(length), {}
    with contextlib.redirect_stdout(io.StringIO()):
        found["bare"] = seconds(bare) / length
        for name in ("not in the store", "in the store"):
            found[name] = seconds(launched) / length
            record = json.loads((place / "run/stages/judge.json").read_text())
            assert record["cached"] == (name == "in the store"), record["reason"]
            found[f"{name}: stage"] = record["ended"] - record["started"]
    return found


def chains_apart(length: int) -> dict[str, float]:
    """The same in a process of its own, which begins in a checkout with the chain's graph."""
    with tempfile.TemporaryDirectory() as folder:
        graphs = Path(folder) / "pipelines"
        graphs.mkdir()
        (graphs / "__init__.py").touch()
        (graphs / f"chain_{length}.py").write_text(CHAIN.format(length=length))
        command = [sys.executable, __file__, "--chain", str(length)]
        done = subprocess.run(
            command, cwd=folder, env=os.environ | QUIET, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-3000:]
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found


def python(*arguments: str) -> None:
    """A Python process."""
    environment = os.environ | QUIET
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=environment)


def commands() -> dict[str, float]:
    """Seconds of the task as a command, and of what its process imports."""
    with tempfile.TemporaryDirectory() as folder:
        stage = ["-m", "posttrain.cli", "judge", "--recipe", "demo", "--judge", f"{folder}/judge"]
        stage += ["--store", f"{folder}/store", "--run-folder", f"{folder}/run"]
        return {
            "interpreter": seconds(lambda: python("-c", "")),
            "imports": seconds(lambda: python("-c", IMPORTS)),
            "command": seconds(lambda: python(*stage)),
            "command, in the store": seconds(lambda: python(*stage)),
        }


def compiled(tasks: int) -> dict[str, float]:
    """Seconds to define a graph of fine-tunings one upon another, and to write its two forms."""
    from kfp import dsl
    from kfp.compiler import Compiler

    from pipelines import argo
    from pipelines.steps import Pool, Steps
    from posttrain.stages import TASKS

    TASKS.update({f"sft_{number}": "sft" for number in range(tasks - 3)})

    def define() -> Any:
        @dsl.pipeline(name="hundred")
        def hundred(
            recipe: str = "demo",
            seed: int = 0,
            overrides: str = "",
            nodes: dict = {},  # noqa: B006 - the form in which KFP reads a default
            accelerators: str = "0",
            tolerations: list = [],  # noqa: B006
        ):
            pools = {"cpu": Pool(nodes), "train": Pool(nodes, accelerators)}
            run = {"recipe": recipe, "seed": seed, "overrides": overrides}
            placing = {"accelerator": "nvidia.com/gpu", "tolerations": tolerations}
            step = Steps(pools=pools, **placing, **run)
            policy = step("base", "Base policy")["policy"]
            data = step("curate", "Curate", rows=step("raw", "Raw rows")["rows"])
            for number in range(tasks - 3):
                given = {"policy": policy, "demonstrations": data["demonstrations"]}
                policy = step(f"sft_{number}", "Fine-tune", **given)["trained"]

        return hundred

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = define()
        file = Path(folder) / "graph.yaml"
        return {
            "define": seconds(define),
            "KFP": seconds(lambda: Compiler().compile(graph, str(file))),
            "Argo": seconds(lambda: file.write_text(argo.workflow(graph).to_yaml())),
        }


def told(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    """Medians over the rounds."""
    return {name: median(each[name] for each in rounds) for name in rounds[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--chain", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--cpu", action="store_true", help="seconds of processors")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.cpu:
        os.environ[CPU] = "1"
    if given.chain:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(chains(given.chain, Path(folder))))
        return
    sys.path.insert(0, str(ROOT))
    rounds: dict[str, list[dict[str, float]]] = {}
    for _ in range(given.rounds):
        for length in LENGTHS:
            rounds.setdefault(f"chain of {length}", []).append(chains_apart(length))
        rounds.setdefault("alone", []).append(commands())
        rounds.setdefault("graph of 100 tasks", []).append(compiled(100))
    found = {name: told(each) for name, each in rounds.items()}
    alone = found["alone"]
    imports = alone["imports"] - alone["interpreter"]
    for length in LENGTHS:
        chain = found[f"chain of {length}"]
        chain["aim"] = 1.2 * chain["bare"] + imports
    for name, figures in found.items():
        print(name, *(f"{what} {value:.3f}" for what, value in figures.items()), sep="\n  ")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
