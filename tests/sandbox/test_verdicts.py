"""Answers that try to pass without being right: every trick is told from a pass, and counted."""

import json
import os
import time
from pathlib import Path

import pytest

from posttrain.rewards import verifier
from posttrain.rewards.programs import code_of
from posttrain.rewards.verifiers import Claim, prediction, verify, verify_all
from posttrain.sandbox import first_working, processes
from posttrain.sandbox.backends import Backend
from posttrain.sandbox.verdicts import Case, CodeTests, examine, examine_all

pytestmark = pytest.mark.skipif(
    not isinstance(first_working(), Backend), reason=f"no sandbox: {first_working()}"
)

DATA = Path(
    os.environ.get("POSTTRAIN_DATA") or Path(__file__).parents[2].resolve() / "../shared/data"
)
ADD = CodeTests(
    tests="assert add(2, 3) == 5\nassert add([1], [2]) == [1, 2]\n", names=("add",), seconds=5
)
RIGHT = "def add(a, b):\n    return a + b\n"

TRICKS = {
    "nothing": ("", "error"),
    "wrong": ("def add(a, b): return a", "failed"),
    "not Python": ("def add(a, b: return a", "error"),
    "raises": ("def add(a, b): raise ValueError('no')", "error"),
    "exit at once": ("import os; os._exit(0)", "died"),
    "exit in the call": ("import os\ndef add(a, b): os._exit(0)", "died"),
    "sys.exit at once": ("raise SystemExit(0)", "error"),
    "sys.exit in the call": ("import sys\ndef add(a, b): sys.exit(0)", "error"),
    "exit at last": ("import atexit, os\natexit.register(os._exit, 0)\ndef add(a, b): return 0",
                     "failed"),
    "equal to all": ("class Yes:\n    def __eq__(self, other): return True\n"
                     "def add(a, b): return Yes()", "failed"),
    "equal int": ("class Yes(int):\n    def __eq__(self, other): return True\n"
                  "    __hash__ = int.__hash__\ndef add(a, b): return Yes(1)", "failed"),
    "no assertions": ("import builtins\nclass Quiet(Exception): pass\n"
                      "builtins.AssertionError = Quiet\ndef add(a, b): return 0", "failed"),
    "patched builtins": ("import builtins, unittest\nbuiltins.compile = builtins.exec = "
                         "lambda *a, **k: None\nunittest.TestCase.assertEqual = lambda *a: None\n"
                         "def add(a, b): return 0", "failed"),
    "forged verdict": ("import os, sys\nfor n in range(64):\n"
                       "    try: os.write(n, b'{\"status\": \"passed\", \"why\": \"\"}\\n')\n"
                       "    except OSError: pass\ndef add(a, b): return 0", "died"),
    "forged replies": ("import os\nfrom cell import wire\ntext = b'[\"value\", null]'\n"
                       "for n in range(3, 64):\n    for _ in range(9):\n"
                       "        try: os.write(n, len(text).to_bytes(4) + text)\n"
                       "        except OSError: break\n", "error"),
    "tests rewritten": ("import glob, os\nfor place in ('/harness/cell', '/work', '/tmp', '.'):\n"
                        "    for path in glob.glob(place + '/*'):\n"
                        "        try: open(path, 'w').write('')\n        except OSError: pass\n"
                        "def add(a, b): return 0", "failed"),
    "harness killed": ("import os\nfor pid in (1, os.getppid(), -1):\n"
                       "    try: os.kill(pid, 9)\n    except OSError: pass\n"
                       "def add(a, b): return 0", "failed or died"),
    "the expected looked up": ("import gc, sys\ndef add(a, b):\n"
                               "    texts = [o for o in gc.get_objects()"
                               " if 'assert add(2' in str(o)]\n"
                               "    frame = sys._getframe()\n    while frame.f_back:\n"
                               "        frame = frame.f_back\n"
                               "        texts += [v for v in frame.f_locals.values()"
                               " if 'assert add(2' in str(v)]\n"
                               "    return 5 if texts else 0", "failed"),
    "a thread goes on": ("import threading, time\nthreading.Thread(target=time.sleep, args=(60,))"
                         ".start()\ndef add(a, b): return 0", "failed"),
    "endless": ("def add(a, b):\n    while True: pass", "timeout"),
    "endless on import": ("while True: pass", "timeout"),
    "memory": ("def add(a, b): return len(bytearray(10 * 2**30))", "error"),
    "endless iterator": ("import itertools\ndef add(a, b): return itertools.count()", "failed"),
    "huge": ("def add(a, b): return 'x' * 2**25", "died"),
    "deep": ("def add(a, b):\n    x = []\n    for _ in range(10**5): x = [x]\n    return x",
             "error"),
    "raised by name": ("class BrokenChannel(BaseException): pass\n"
                       "def add(a, b): raise BrokenChannel", "error"),
    "raises the end": ("def add(a, b): raise KeyboardInterrupt", "error"),
    "flood": ("def add(a, b):\n    while True: print('x' * 10**6)", "timeout"),
}  # fmt: skip


@pytest.mark.parametrize("trick", TRICKS)
def test_no_trick_passes(trick: str) -> None:
    code, result = TRICKS[trick]
    quick = ADD.model_copy(update={"seconds": 1.0 if result == "timeout" else 20.0})
    found = examine(code, quick)
    assert found.result in result.split(" or "), found


def test_what_is_right_passes_and_says_nothing() -> None:
    assert examine(RIGHT, ADD)[:2] == ("passed", "")
    loud = f'print(\'{{"status": "failed"}}\')\n{RIGHT}'
    assert examine(loud, ADD).result == "passed"


def test_a_bad_one_among_many_harms_no_other() -> None:
    codes = [RIGHT, TRICKS["exit in the call"][0], RIGHT, TRICKS["patched builtins"][0], RIGHT]
    found = examine_all([(code, ADD) for code in codes], workers=3)
    assert [each.result for each in found] == ["passed", "died", "passed", "failed", "passed"]
    assert processes.descendants(os.getpid()) == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("(1, 'é\\ud800', None, True, 2.5, -0.0)", "(1, 'é\\ud800', None, True, 2.5, 0)"),
        ("float('inf'), 10**400, 2**53 + 1", "(float('inf'), 10**400, 2**53 + 1)"),
        ("{(1, 2): {3}, 'k': b'x'}", "{(1, 2): {3}, 'k': b'x'}"),
        ("frozenset([1]), 1j, range(3)", "(frozenset([1]), 1j, range(3))"),
        ("[*map(str, range(2))]", "['0', '1']"),
        ("__import__('collections').Counter('aab')", "{'a': 2, 'b': 1}"),
        ("__import__('fractions').Fraction(1, 3)", "__import__('fractions').Fraction(1, 3)"),
    ],
)
def test_values_arrive_as_they_were(value: str, expected: str) -> None:
    tests = CodeTests(tests=f"assert f() == {expected}, f()", names=("f",))
    found = examine(f"def f(): return {value}", tests)
    assert found.result == "passed", found


def test_iterators_objects_and_changed_arguments() -> None:
    code = (
        "class Node:\n    def __init__(self, v): self.v, self.next = v, None\n"
        "def total(n): return n.v + (total(n.next) if n.next else 0)\n"
        "def double(xs): xs[:] = [2 * x for x in xs]\n"
        "def evens(): yield from (0, 2)\n"
    )
    tests = (
        "first = Node(1); first.next = Node(v=5)\nassert total(first) == 6\n"
        "assert first.next.v == 5\nxs = [1, 2]; double(xs); assert xs == [2, 4]\n"
        "assert list(evens()) == [0, 2]\n"
        "try: first.absent\nexcept AttributeError: pass\nelse: assert False\n"
    )
    names = ("Node", "total", "double", "evens")
    found = examine(code, CodeTests(tests=tests, names=names))
    assert found.result == "passed", found


def test_programs_that_read_and_print() -> None:
    tests = CodeTests(cases=(Case("1 2\n", "3\n"), Case("5 5\n", "10")))
    right = "print(sum(map(int, input().split())))"
    assert examine(right, tests).result == "passed"
    assert examine("print(3)", tests)[:2] == ("failed", "printed '3\\n'")
    assert examine("input(); exit(0)", tests).result == "failed"
    assert examine("b = bytearray(2**40)", tests).result == "memory"
    assert examine("while True: print('3')", tests).result == "output"


def test_the_program_of_a_response() -> None:
    two = "First\n```python\ndef f(): 1\n```\nand\n```\nprint(f())\n```\n"
    assert code_of(two) == "print(f())\n"
    assert code_of(two, ("f",)) == "def f(): 1\n"
    assert code_of("```py\nx = 1\n") == "x = 1\n"
    assert code_of("    return 1\n\nprint(2)\n") == "    return 1\n\n"
    assert code_of("def f(): pass") == "def f(): pass"
    assert prediction("code", "```\nx=1 # one\n```") == "x = 1"


def test_the_verifier_of_code() -> None:
    answer = ADD.model_dump_json(exclude_defaults=True)
    claims = [
        Claim("code", "", answer, f"Here:\n```python\n{RIGHT}```"),
        Claim("number", "", "3", "#### 3"),
        Claim("code", "", answer, "```python\ndef add(a, b): return 5\n```"),
        Claim("code", "", "no tests", RIGHT),
    ]
    assert verify_all(claims, workers=2) == [True, True, False, False]
    began = time.monotonic()
    assert verify(*claims[0])  # known by now
    assert time.monotonic() - began < 0.02


def test_the_reward_verifier_runs_code() -> None:
    from posttrain.records import Prompt
    from posttrain.rl.rollout import Rollout

    answer = ADD.model_dump_json(exclude_defaults=True)
    prompt = Prompt(id="1", text="add", answer=answer, task="code", source="test")
    rollouts = [
        Rollout(prompt=prompt, text=text, tokens=(1,), behaviour_logps=(0.0,), truncated=False)
        for text in (RIGHT, "def add(a, b): return 0")
    ]
    assert verifier(rollouts, None, workers=2) == [1.0, 0.0]


@pytest.mark.realdata
@pytest.mark.skipif(not DATA.is_dir(), reason="no folder of public data files")
@pytest.mark.parametrize("name", ["humaneval", "mbpp"])
def test_reference_solutions_pass_and_empty_ones_do_not(name: str) -> None:
    from posttrain.benchmark.suites import CHOICES, Place

    column = {"humaneval": "canonical_solution", "mbpp": "code"}[name]
    file = {"humaneval": "humaneval/HumanEval.jsonl", "mbpp": "mbpp/mbpp.jsonl"}[name]
    rows = [json.loads(line) for line in (DATA / file).read_text().splitlines()]
    items = CHOICES[name](limit=10).items(Place(None, str(DATA)))
    key = {"humaneval": "prompt", "mbpp": "text"}[name]
    pairs = []
    for item in items:
        [row] = [row for row in rows if row[key].strip() in item.prompt.text][:1]
        pairs.append((row[column], CodeTests.model_validate_json(item.prompt.answer)))
    assert {found.result for found in examine_all(pairs)} == {"passed"}
    assert "passed" not in {found.result for found in examine_all([("", t) for _, t in pairs[:5]])}
