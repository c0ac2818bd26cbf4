"""MBPP: write a Python function from a sentence, judged by its tests in a sandbox."""

import ast
import warnings
from collections.abc import Iterator

from posttrain.benchmark.formulas import PROGRAM_METRICS
from posttrain.benchmark.suites.sources import Hub, Upstream, prompt_of
from posttrain.benchmark.suites.suite import Item, Suite
from posttrain.errors import DataError, Fault
from posttrain.raw.sources.source import Line, field, text
from posttrain.sandbox.verdicts import CodeTests


def read(line: Line, file: str) -> Iterator[Item]:
    """The sentence and its assertions, as the paper shows them to the model.

    The reference solution tells which of the tests' names are the answer's, and which modules the
    tests expect to be imported. Rows of the paper's own test split are ids 11 to 510.
    """
    number = field(line, "task_id")
    if not isinstance(number, int) or not 11 <= number <= 510:
        return
    checks = field(line, "test_list")
    if not isinstance(checks, list) or not checks or not all(isinstance(c, str) for c in checks):
        raise DataError(Fault("bad tests", line.where, "test_list holds no texts", "mend the row"))
    setup = field(line, "test_setup_code")
    body = "\n".join([str(setup).replace("\r\n", "\n"), *checks])
    try:
        with warnings.catch_warnings(action="ignore"):  # of the rows' own style
            names, imports = needed(body, text(line, "code").replace("\r\n", "\n"))
    except SyntaxError as error:
        raise DataError(Fault("bad Python", line.where, str(error), "mend the row")) from None
    if not names:
        why = "the tests use nothing that the reference solution defines"
        raise DataError(Fault("bad tests", line.where, why, "mend the row"))
    answer = CodeTests(tests=f"{imports}\n{body}\n", names=names)
    shown = "\n".join(
        [text(line, "text").strip(), "", "Your code should pass these tests:", *checks]
    )
    yield Item(prompt_of("code", shown, answer.model_dump_json(exclude_defaults=True), "mbpp"))


def needed(tests: str, solution: str) -> tuple[tuple[str, ...], str]:
    """Names that the tests take of a solution's top level, and its imports that they use."""
    used = {node.id for node in ast.walk(ast.parse(tests)) if isinstance(node, ast.Name)}
    names: set[str] = set()
    imports: list[str] = []
    for node in ast.parse(solution).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {each.id for each in node.targets if isinstance(each, ast.Name)}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound = {(each.asname or each.name).split(".")[0] for each in node.names}
            imports += [ast.unparse(node)] if bound & used else []
    stored = {
        node.id
        for node in ast.walk(ast.parse(tests))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return tuple(sorted(names & used - stored)), "\n".join(imports)


SUITE = Suite(
    name="mbpp",
    about=__doc__,
    source=Upstream(
        files=("mbpp/mbpp.jsonl",),
        read=read,
        hub=Hub(
            "google-research-datasets/mbpp",
            "full",
            "test",
            "4bb6404fdc6cacfda99d4ac4205087b89d32030c",
        ),
    ),
    scorer="programs",
    metrics=PROGRAM_METRICS,
    prompt="{question}\n\nAnswer with Python code in one code block.",
    max_new_tokens=1024,
    paper="arXiv:2108.07732",
    licence="CC-BY-4.0",
    contamination="public since 2021 and widely trained on",
)
