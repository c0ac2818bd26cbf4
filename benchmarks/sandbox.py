"""How many programs a second the sandbox runs, beside a bare interpreter.

`python benchmarks/sandbox.py` runs an empty program and a tested function behind each backend that
works here, one at a time and one per core; medians over turns, so that a busy machine slows all.
`--json FILE` keeps the figures.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from posttrain.sandbox import Limits, run_sandboxed, why_not
from posttrain.sandbox.backends import BACKENDS
from posttrain.sandbox.verdicts import CodeTests, cores, examine

TESTS = CodeTests(tests="assert add(2, 3) == 5\n", names=("add",))
ANSWER = "def add(a, b):\n    return a + b\n"


def rate(work: Callable[[], object], count: int, workers: int) -> float:
    """Calls a second."""
    began = time.perf_counter()
    with ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(work) for _ in range(count)]:
            done.result()
    return count / (time.perf_counter() - began)


def bare() -> None:
    """An interpreter that does nothing, without walls or limits."""
    subprocess.run([os.path.realpath(sys.executable), "-I", "-S", "-c", ""], check=True)


def empty(backend: str) -> None:
    """The empty program in a sandbox."""
    found = run_sandboxed("", backend=backend, limits=Limits())
    assert found.status == "ok", found


def tested(backend: str) -> None:
    """A function and its test: two sandboxes."""
    os.environ["POSTTRAIN_SANDBOX"] = backend
    assert examine(ANSWER, TESTS).result == "passed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    backends = [name for name in BACKENDS if not why_not(name)]
    found: dict[str, list[float]] = {}
    for _ in range(given.turns):
        for workers in sorted({1, cores()}):
            found.setdefault(f"bare interpreter x{workers}", []).append(
                rate(bare, given.count, workers)
            )
            for name in backends:
                for what in (empty, tested):
                    key = f"{what.__name__}, {name} x{workers}"
                    value = rate(lambda w=what, n=name: w(n), given.count, workers)
                    found.setdefault(key, []).append(value)
    medians = {key: round(median(values), 1) for key, values in found.items()}
    for key, value in medians.items():
        print(f"{key:32} {value:8.1f}/s  ({min(found[key]):.1f} to {max(found[key]):.1f})")
    if given.json:
        given.json.write_text(json.dumps(medians, indent=1))


if __name__ == "__main__":
    main()
