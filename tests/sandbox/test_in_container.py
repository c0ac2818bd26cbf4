"""The sandbox service as its pod runs it: a container without any privilege, and hostile programs.

The seccomp profile is the engine's default one.
"""

import json
import os
import subprocess
import time
from collections.abc import Iterator

import pytest
from tests.sandbox.hostile import HOSTILE

from posttrain.sandbox.limits import Outcome

pytestmark = pytest.mark.container

RESTRICTED = [
    *("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--user=1000:1000"),
    *("--memory=2g", "--pids-limit=256", "--network=none"),
    *("--tmpfs=/tmp:size=64m,mode=1777", "--tmpfs=/work:size=256m,mode=1777", "--env=TMPDIR=/work"),
    *("--env=SECRET_TOKEN=hunter2", "--env=HOME=/tmp"),
]
SERVICE = ["sandbox", "--port=8080", "--workers=2", "--seconds=2", "--memory-mib=256"]

CLIENT = """
import json, sys
from posttrain.sandbox import Limits, backend_of, run_sandboxed
from posttrain.sandbox.verdicts import CodeTests, examine
told = {}
for name, (code, _) in json.load(sys.stdin).items():
    limits = Limits(seconds=1, memory_mib=128, processes=12)
    told[name] = run_sandboxed(code.format(pid=1, port=8080), limits=limits)
tests = CodeTests(tests="assert f(2) == 4", names=("f",))
told["right"] = examine("def f(x): return 2 * x", tests)
told["wrong"] = examine("def f(x): return 3 * x", tests)
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def container(image: str) -> Iterator[list[str]]:
    """The words that run a command beside the service."""
    name = f"posttrain-sandbox-{os.getpid()}"
    start = ["docker", "run", "--detach", "--name", name, *RESTRICTED, image, *SERVICE]
    started = subprocess.run(start, capture_output=True, text=True, timeout=60)
    try:
        assert started.returncode == 0, started.stderr
        service = "--env=POSTTRAIN_SANDBOX=http://127.0.0.1:8080"
        yield ["docker", "exec", "--interactive", service, name]
    finally:
        log = subprocess.run(["docker", "logs", name], capture_output=True, text=True, timeout=60)
        print(log.stdout, log.stderr)
        subprocess.run(["docker", "rm", "--force", name], capture_output=True, timeout=60)


def test_every_hostile_program_is_contained_in_a_restricted_pod(container: list[str]) -> None:
    done = subprocess.run(
        [*container, "python3", "-c", CLIENT],
        input=json.dumps(HOSTILE),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert (told.pop("right")[0], told.pop("wrong")[0]) == ("passed", "failed")
    assert told.keys() == HOSTILE.keys()
    for name, fields in told.items():
        outcome = Outcome(*fields)
        assert outcome.status in HOSTILE[name][1].split(" or "), (name, outcome)
        assert "hunter2" not in outcome.stdout, name
        assert "read" not in outcome.stdout, name


def test_a_pod_has_walls_of_one_kind_or_the_other(container: list[str]) -> None:
    code = (
        "import json; from posttrain.sandbox import why_not\n"
        "print(json.dumps([*map(why_not, ('namespaces', 'landlock'))]))"
    )
    done = subprocess.run([*container, "python3", "-c", code], capture_output=True, text=True)
    namespaces, landlock = json.loads(done.stdout)
    assert landlock == "" or namespaces == ""


def test_sigterm_ends_it_well(container: list[str]) -> None:
    """The last test of this file: the service is gone afterwards."""
    name = container[-1]
    subprocess.run(["docker", "kill", "--signal=TERM", name], check=True, capture_output=True)
    until = time.monotonic() + 20
    form = "{{.State.Status}} {{.State.ExitCode}}"
    state = ""
    while state != "exited 0" and time.monotonic() < until:
        asked = ["docker", "inspect", "--format", form, name]
        state = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
        time.sleep(0.1)
    assert state == "exited 0"
