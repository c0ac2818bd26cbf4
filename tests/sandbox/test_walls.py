"""Hostile programs, real ones: each is contained, told by its status, and the run goes on.

Every test runs behind each backend that works on this machine.
"""

import os
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from posttrain.errors import ConfigError
from posttrain.sandbox import Limits, Outcome, backend_of, first_working, processes, why_not
from posttrain.sandbox import run_sandboxed as run

WALLS = ("bubblewrap", "namespaces", "landlock")
ONE_PROCESS = ("landlock",)
"""Backends where a program starts no other: there is nothing that could outlive it."""
SMALL = Limits(seconds=5, memory_mib=128, processes=12)


@pytest.fixture(params=WALLS)
def backend(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if reason := why_not(name):
        pytest.skip(f"{name}: {reason}")
    return name


def program(text: str, backend: str, limits: Limits = SMALL) -> Outcome:
    return run(textwrap.dedent(text), backend=backend, limits=limits)


def test_a_backend_with_walls_works_here() -> None:
    """Else nothing below has tested anything."""
    assert any(not why_not(name) for name in WALLS), first_working()


def test_a_program_reads_writes_and_ends(backend: str) -> None:
    code = "import sys; print(input() + open('in/a.txt').read()); print('e', file=sys.stderr)"
    found = run(code, stdin="x\n", files={"in/a.txt": "y"}, backend=backend)
    assert found[:4] == ("ok", 0, "xy\n", "e\n")
    assert program("raise SystemExit(3)", backend)[:2] == ("error", 3)
    failed = program("1 / 0", backend)
    assert (failed.status, failed.code) == ("error", 1)
    assert failed.stderr.endswith("ZeroDivisionError: division by zero\n")
    assert program("import os; os.kill(os.getpid(), 9)", backend)[:2] == ("killed", -9)


def test_a_command_runs_too(backend: str) -> None:
    found = run(["/bin/cat", "-"], stdin="hello", backend=backend)
    assert found[:3] == ("ok", 0, "hello")


def test_an_endless_loop_ends(backend: str) -> None:
    limits = SMALL.model_copy(update={"seconds": 1})
    busy = program("while True: pass", backend, limits)
    asleep = program("import time; time.sleep(60)", backend, limits)
    assert (busy.status, asleep.status) == ("timeout", "timeout")
    assert busy.seconds < 4


def test_a_fork_bomb_is_held_and_swept_away(backend: str) -> None:
    code = """
        import os, time
        made = 0
        while True:
            try:
                if os.fork() == 0:
                    while True:
                        try: os.fork()
                        except OSError: time.sleep(0.01)
                made += 1
            except OSError as error:
                print(made, error.errno, flush=True)
                time.sleep(60)
    """
    found = program(code, backend, SMALL.model_copy(update={"seconds": 1}))
    assert found.status == "timeout"
    made, errno = map(int, found.stdout.split("\n")[0].split())
    assert made <= SMALL.processes
    assert errno == 11
    assert processes.descendants(os.getpid()) == []


def test_ten_gigabytes_are_refused(backend: str) -> None:
    assert program("b = bytearray(10 * 2**30)", backend).status == "memory"
    if backend in ONE_PROCESS:
        return
    many = """
        import os, time
        for _ in range(8):
            if os.fork() == 0: break
        b = bytearray(60 * 2**20)
        time.sleep(30)
    """
    assert program(many, backend).status == "memory"


def test_nothing_outside_can_be_written(backend: str) -> None:
    code = """
        import os, sys
        for folder in ('/', '/harness', '/harness/cell', '/dev', '/etc', '/tmp', '/usr/lib',
                       os.path.dirname(os.__file__), '/root', '/home', '/var/tmp'):
            try: open(folder + '/planted', 'w')
            except OSError: continue
            print(folder)
        try: open(sys.executable, 'ab')
        except OSError: pass
        else: print('interpreter')
        open('mine', 'w').write('x'); print('end')
    """
    found = program(code, backend)
    assert (found.stdout, found.stderr) == ("end\n", "")


def test_the_work_folder_is_new_and_small(backend: str) -> None:
    assert program("open('a', 'w').write('x')", backend).status == "ok"
    assert program("import os; print(os.listdir())", backend).stdout == "[]\n"
    limits = SMALL.model_copy(update={"disk_mib": 2, "file_mib": 1})
    code = """
        import os, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        written = 0
        for n in range(8):
            try:
                with open(str(n), 'wb', 0) as f:
                    while True: written += f.write(bytes(2**18))
            except OSError: continue
        print(written <= 2 * 2**20, flush=True)
        __import__('time').sleep(0.5)
    """
    found = program(code, backend, limits)
    assert found.stdout == "True\n" or found.status == "output"
    assert found.seconds < 4 or backend not in ONE_PROCESS


def test_no_socket_reaches_anyone(backend: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        server.settimeout(0.2)
        code = f"""
            import socket
            for address in (('127.0.0.1', {port}), ('192.0.2.1', 80), ('8.8.8.8', 53)):
                try: socket.create_connection(address, 1)
                except OSError: continue
                print(address)
            print('end')
        """
        assert program(code, backend).stdout == "end\n"
        with pytest.raises(TimeoutError):
            server.accept()


def test_an_abstract_socket_of_ours_is_out_of_reach(backend: str) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        name = f"\0posttrain-{os.getpid()}"
        server.bind(name)
        server.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect({name!r})"
        assert program(code, backend).status == "error"


def test_no_environment_but_its_own(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    code = """
        import os
        print(dict(os.environ))
        for pid in [1, os.getppid(), *range(2, 60)]:
            for name in ('environ', 'cmdline', 'mem', 'maps', 'root/etc/passwd', 'fd/1'):
                try: print(open(f'/proc/{pid}/{name}', 'rb').read(100))
                except OSError: pass
        try: print(os.listdir('/'))
        except OSError: pass
    """
    found = program(code, backend)
    assert found.status == "ok"
    assert "hunter2" not in found.stdout
    assert "read" not in found.stdout
    assert "HOME" in found.stdout


def test_a_symlink_leads_nowhere(backend: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2")
    code = f"""
        import os
        for n, target in enumerate(({str(tmp_path / "secret")!r}, '/etc/passwd',
                                    '/proc/1/root/etc/passwd', '../../../../etc/passwd')):
            os.symlink(target, f'link{{n}}')
            try: print(open(f'link{{n}}').read())
            except OSError: pass
        print('end')
    """
    assert program(code, backend).stdout == "end\n"


def test_a_flood_is_cut(backend: str) -> None:
    limits = SMALL.model_copy(update={"output_kib": 16})
    found = program("while True: print('x' * 1000)", backend, limits)
    assert found.status == "output"
    assert len(found.stdout) <= 16 << 10
    assert program("import os\nwhile True: os.write(2, b'y' * 999)", backend, limits)[0] == "output"


def test_no_privilege_and_no_namespace_of_its_own(backend: str) -> None:
    """A namespace of its own would give it memory that nobody counts."""
    code = """
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        print(os.getuid(), libc.unshare(0x10000000), libc.unshare(0x20000))
        print(libc.mount(b'tmpfs', b'/work', b'tmpfs', 0, None), libc.umount2(b'/work', 2))
        print(libc.sethostname(b'x', 1), libc.prctl(39, 0, 0, 0, 0))
    """
    user = os.getuid() if backend in ONE_PROCESS else 1000
    assert program(code, backend).stdout == f"{user} -1 -1\n-1 -1\n-1 1\n"


def test_memory_that_no_limit_counts_is_refused(backend: str) -> None:
    code = """
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        try: os.memfd_create('x')
        except PermissionError: print('memfd')
        print(libc.shmget(0, 2**20, 0o1600), libc.syscall(425, 1, 0))
    """
    assert program(code, backend).stdout == "memfd\n-1 -1\n"


def test_what_watches_it_cannot_be_traced_or_talked_to(backend: str) -> None:
    code = """
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        print(libc.ptrace(16, os.getppid(), 0, 0))
        for n in range(3, 64):
            try: os.write(n, b'end 0\\n'); print('wrote to', n)
            except OSError: pass
    """
    found = program(code, backend)
    assert (found.status, found.stdout) == ("ok", "-1\n")


def test_killing_all_it_can_see_ends_only_itself(backend: str) -> None:
    code = """
        import os
        for pid in (-1, 0, 1, os.getppid()):
            try: os.kill(pid, 9)
            except OSError: pass
    """
    assert program(code, backend).status in ("ok", "killed")
    assert program("print('next')", backend).stdout == "next\n"


def test_what_it_left_behind_is_gone(backend: str) -> None:
    code = """
        import os, sys, time
        try:
            if os.fork() == 0:
                os.setsid()
                if os.fork(): os._exit(0)
                time.sleep(60)
        except BlockingIOError: pass
        print('parent is done')
    """
    began = time.monotonic()
    assert program(code, backend)[:3] == ("ok", 0, "parent is done\n")
    assert time.monotonic() - began < 4
    assert processes.descendants(os.getpid()) == []


def test_fifty_runs_leave_nothing_behind(backend: str) -> None:
    open_before = len(os.listdir("/proc/self/fd"))
    for n in range(50):
        assert run(f"print({n})", backend=backend, limits=SMALL).stdout == f"{n}\n"
    assert processes.descendants(os.getpid()) == []
    assert len(os.listdir("/proc/self/fd")) == open_before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_our_own_death_is_the_sandboxes_too(backend: str) -> None:
    """Killed with SIGKILL, a process has no time to clean up: the kernel does it."""
    code = f"from posttrain.sandbox import *; run_sandboxed('while 1: 1', backend={backend!r})"
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    ours = subprocess.Popen([sys.executable, "-c", code], env=os.environ | paths)
    below: list[int] = []
    until = time.monotonic() + 8
    least = 2 if backend in ONE_PROCESS else 3
    while len(below) < least and time.monotonic() < until:
        below = processes.descendants(ours.pid)
        time.sleep(0.02)
    assert len(below) >= least
    ours.kill()
    ours.wait()
    while any(running(pid) for pid in below) and time.monotonic() < until:
        time.sleep(0.02)
    assert not [pid for pid in below if running(pid)]


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_without_walls_only_who_asked_gets_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine where nothing works, made by naming a backend that is not there."""
    monkeypatch.setenv("POSTTRAIN_SANDBOX", "jail")
    with pytest.raises(ConfigError, match="unknown backend `jail`"):
        backend_of()
    monkeypatch.setenv("POSTTRAIN_SANDBOX", "limits")
    assert backend_of().name == "limits"
    found = run("import os; print(os.environ); b = bytearray(2**31)", limits=SMALL)
    assert found.status == "memory"
    assert "PATH" in found.stdout
    assert run("while True: print('x' * 999)", limits=SMALL).status == "output"
    left = run("import os, time; os.fork() or (os.setsid(), time.sleep(60))", limits=SMALL)
    assert left.status == "ok"
    assert processes.descendants(os.getpid()) == []


def test_a_machine_without_walls_is_told_how_to_mend_it() -> None:
    """In a process of a user namespace that may hold no other, without Landlock and `bwrap`."""
    code = (
        "import os\n"
        "from posttrain.sandbox import faults\n"
        "from posttrain.sandbox.cell import calls, kernel\n"
        "try: kernel.unshare(kernel.NEWUSER)\n"
        "except OSError: pass\n"
        "else: open('/proc/sys/user/max_user_namespaces', 'w').write('0')\n"
        "os.environ['PATH'] = ''\n"
        "kernel.drop_privileges()\n"
        "calls.refuse({'landlock_create_ruleset': (444, 444)})\n"
        "for fault in faults(): print(fault)\n"
        "print(len(faults(allow_unsafe=True)))\n"
    )
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | paths, capture_output=True, text=True
    )
    assert "no sandbox works on this machine" in found.stdout, found.stderr
    assert "install bubblewrap" in found.stdout
    assert "landlock" in found.stdout
    assert found.stdout.endswith("\n0\n")


def test_files_stay_in_the_work_folder(backend: str) -> None:
    for path in ("../x", "/x", ""):
        with pytest.raises(ConfigError, match="leaves the work folder"):
            run("", files={path: "x"}, backend=backend)
