"""Programs that share namespaces and user with us: what only they could try, and a user's eyes."""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

from posttrain.sandbox import Limits, Outcome, first_working, processes, run_sandboxed, why_not
from posttrain.sandbox.backends import BACKENDS, Backend
from posttrain.sandbox.cell import landlock
from posttrain.sandbox.running import started
from posttrain.sandbox.verdicts import CodeTests, examine

pytestmark = pytest.mark.skipif(bool(why_not("landlock")), reason=why_not("landlock"))
FOLDER = Path(__file__).parent
USER = 1000
"""The user of our pods."""
SMALL = Limits(seconds=5, memory_mib=128, processes=12)


def program(text: str, limits: Limits = SMALL) -> Outcome:
    return run_sandboxed(textwrap.dedent(text), backend="landlock", limits=limits)


def test_it_is_taken_where_no_namespace_can_be_made() -> None:
    """As in a pod: unshare is refused, Landlock is not."""
    code = (
        "import os\n"
        "from posttrain.sandbox import first_working\n"
        "from posttrain.sandbox.cell import calls, kernel\n"
        "os.environ['PATH'] = ''\n"
        "kernel.drop_privileges()\n"
        "calls.refuse({'unshare': calls.REFUSED['unshare']})\n"
        "print(first_working().name)\n"
    )
    paths = {"PYTHONPATH": os.pathsep.join(sys.path), "POSTTRAIN_SANDBOX": ""}
    found = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | paths, capture_output=True, text=True
    )
    assert found.stdout == "landlock\n", found.stderr
    best = first_working()
    assert isinstance(best, Backend)
    assert best.walls


def test_no_process_is_started_by_any_call() -> None:
    code = """
        import _posixsubprocess, ctypes, os, subprocess, threading
        libc = ctypes.CDLL(None, use_errno=True)
        def told(name, result): print(name, result, ctypes.get_errno())
        for number, name in ((57, 'fork'), (58, 'vfork'), (435, 'clone3')):
            told(name, libc.syscall(number, 0, 0, 0, 0, 0))
        told('clone', libc.syscall(56, 17, 0, 0, 0, 0))
        told('in a namespace', libc.syscall(56, 17 | 0x10000000, 0, 0, 0, 0))
        try: subprocess.run(['/bin/true'])
        except OSError as error: print(error.errno)
        thread = threading.Thread(target=print, args=('a thread',)); thread.start(); thread.join()
    """
    if os.uname().machine == "x86_64":
        assert program(code).stdout.split("\n") == [
            "fork -1 1",
            "vfork -1 1",
            "clone3 -1 38",
            "clone -1 11",
            "in a namespace -1 11",
            "11",
            "a thread",
            "",
        ]
    assert program("import os; os.fork()").stderr.endswith("temporarily unavailable\n")


def test_a_bomb_of_threads_is_ended() -> None:
    code = """
        import threading, time
        threading.stack_size(32768)
        while True:
            try: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
            except RuntimeError: time.sleep(60)
    """
    assert program(code).status == "killed"


def test_a_flood_of_files_is_ended_and_cleared_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
        import itertools, os
        for n in itertools.count():
            try:
                open(str(n), 'wb').write(bytes(2**18))
                os.truncate(str(n), 0)
            except OSError: pass
            try: os.unlink(str(n))
            except OSError: pass
    """
    limits = SMALL.model_copy(update={"disk_mib": 2})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = program(code, limits)
    assert found.status == "output"
    assert found.seconds < 4
    assert list(tmp_path.iterdir()) == []


def test_nothing_lies_hidden_in_its_folder() -> None:
    """Else it could be neither counted nor cleared away."""
    code = """
        import os
        open('a', 'w').close()
        for what in (lambda: os.mkdir('d', 0), lambda: os.unlink('a'), lambda: os.mkfifo('f'),
                     lambda: os.rename('a', 'b'), lambda: os.open('.', os.O_TMPFILE | os.O_RDWR),
                     lambda: os.chmod('a', 0), lambda: os.link('/etc/passwd', 'b')):
            try: what()
            except OSError: continue
            print('done')
        print(os.listdir())
    """
    assert program(code).stdout == "['a']\n"


HARM = [
    "os.kill({pid}, 0)",
    "os.kill({pid}, 15)",
    "os.killpg({pid}, 15)",
    "signal.pidfd_send_signal(os.pidfd_open({pid}), 15)",
    "os.kill(-1, 0)",
    "os.kill(0, 0)",
    "resource.prlimit({pid}, resource.RLIMIT_CPU, (1, 1))",
    "os.sched_setaffinity({pid}, [0])",
    "os.setpriority(os.PRIO_USER, 0, 19)",
    "fcntl.fcntl(0, fcntl.F_SETOWN, {pid})",
    "fcntl.fcntl(os.open(os.__file__, os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_WRLCK)",
    "open('/proc/{pid}/environ')",
    "open('/proc/{pid}/mem', 'r+b')",
    "os.readlink('/proc/{pid}/cwd')",
    "os.listdir('/proc/{pid}/fd')",
    "socket.socket(socket.AF_UNIX)",
    "socket.socket(socket.AF_NETLINK)",
    "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
]


@pytest.mark.parametrize("harm", HARM)
def test_other_processes_of_the_user_are_out_of_reach(harm: str) -> None:
    """A process of the same user, with a secret in its environment, which no limit protects."""
    victim = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], env={"SECRET": "hunter2"}
    )
    try:
        done = harm.format(pid=victim.pid)
        found = program(f"import fcntl, os, resource, signal, socket\nprint({done})")
        assert (found.status, found.stdout) == ("error", ""), found
        assert "PermissionError" in found.stderr
        assert victim.poll() is None
    finally:
        victim.send_signal(signal.SIGKILL)
        victim.wait()


def test_files_of_the_user_keep_content_and_mode(tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    ours.write_text("hunter2")
    ours.chmod(0o644)
    code = f"""
        import ctypes, os
        path = {str(ours)!r}
        for what in (lambda: open(path).read(), lambda: open(path, 'a'),
                     lambda: os.chmod(path, 0), lambda: os.truncate(path, 0),
                     lambda: os.open(path, os.O_RDONLY | os.O_TRUNC), lambda: os.unlink(path),
                     lambda: os.open(path, 3), lambda: os.utime(path), lambda: os.remove(path),
                     lambda: os.rename(path, 'x'), lambda: os.link(path, 'x'),
                     lambda: os.setxattr(path, 'user.x', b'x'), lambda: os.execv(path, [path]),
                     lambda: os.listdir({str(tmp_path)!r})):
            try: print('done', what())
            except OSError: pass
        libc = ctypes.CDLL(None)
        libc.open(os.__file__.encode(), os.O_RDONLY | os.O_TRUNC)
    """
    before = Path(os.__file__).stat().st_size
    assert program(code)[:3] == ("ok", 0, "")
    assert (ours.read_text(), ours.stat().st_mode & 0o777) == ("hunter2", 0o644)
    assert Path(os.__file__).stat().st_size == before


def test_a_sibling_is_out_of_reach(tmp_path: Path) -> None:
    """One that runs at the same time, whose folder and process are known."""
    job = {"mode": "script", "code": "import time; time.sleep(30)", "files": {"a": b"hunter2"}}
    with started(BACKENDS["landlock"], job, SMALL) as sibling:
        secret = Path(sibling.folder, "a")
        while not (secret.exists() and (pids := processes.descendants(sibling.process.pid))):
            time.sleep(0.01)
        code = f"""
            import os
            for what in (lambda: open({str(secret)!r}).read(), lambda: open({str(secret)!r}, 'w'),
                         lambda: os.listdir({sibling.folder!r}),
                         lambda: os.listdir(os.path.dirname(os.getcwd())),
                         lambda: open('/proc/{pids[0]}/mem'), lambda: os.kill({pids[0]}, 9),
                         lambda: os.kill({sibling.process.pid}, 9)):
                try: print('done', what())
                except PermissionError: pass
            print('end')
        """
        assert program(code).stdout == "end\n"
        assert secret.read_text() == "hunter2"
        assert processes.descendants(sibling.process.pid) == pids


def test_verdicts_are_the_same_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTTRAIN_SANDBOX", "landlock")
    tests = CodeTests(tests="assert f(2) == 4", names=("f",), seconds=5)
    assert examine("def f(x): return 2 * x", tests).result == "passed"
    assert examine("import os\ndef f(x): os._exit(0)", tests).result == "died"
    assert examine("import os\ndef f(x): os.fork()", tests).result == "error"
    tricks = "import asyncio, threading\nasync def g(x): return 2 * x\ndef f(x):\n    " \
             "return asyncio.run(g(x))"  # fmt: skip
    assert examine(tricks, tests).result == "passed"


def test_the_kernel_is_asked_what_it_can_do() -> None:
    assert landlock.version() >= 1
    assert BACKENDS["landlock"].walls


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_every_wall_stands_for_an_ordinary_user() -> None:
    """All of these tests again, as the user of a pod. The interpreter must be one that it sees."""
    python = next(
        (
            path
            for path in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}")
            if not subprocess.run(["/usr/bin/test", "-x", path], user=USER).returncode
        ),
        None,
    )
    if python is None:
        pytest.skip("no interpreter of this version outside our home folder")
    with tempfile.TemporaryDirectory(dir="/tmp") as home:
        os.chown(home, USER, USER)
        paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "HOME": home}
        words = ["-q", "-p", "no:cacheprovider", "--basetemp", f"{home}/base"]
        found = subprocess.run(
            [python, "-m", "pytest", *words, "-k", "landlock and not ordinary_user", FOLDER],
            user=USER,
            group=USER,
            extra_groups=[],
            cwd=FOLDER.parents[1],
            env=os.environ | paths | {"POSTTRAIN_SANDBOX": "", "TMPDIR": "/tmp"},
            capture_output=True,
            text=True,
        )
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-1000:]
    assert "passed" in found.stdout
