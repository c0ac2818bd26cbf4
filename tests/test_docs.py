"""Documents that are generated, or that name things of the code, agree with it."""

import re
from pathlib import Path

from posttrain.cli import VERBS
from posttrain.stages import STAGES
from posttrain.verbs.plugins import lines

ROOT = Path(__file__).parents[1]


def test_the_plugin_page_is_current() -> None:
    """Mend with `make docs`."""
    assert (ROOT / "docs/plugins.md").read_text(encoding="utf-8") == "\n".join(lines()) + "\n"


def test_every_command_in_the_documents_exists() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md"]
    for page in pages:
        for block in re.findall(r"```\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            for word in re.findall(r"^posttrain (\w+)", block, re.MULTILINE):
                assert word in {*STAGES, *VERBS}, f"{page.name}: posttrain {word}"


def test_every_file_in_the_readme_tree_exists() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    tree = text[text.index("## Find your way") :]
    for path in re.findall(r"^([\w./]+/[\w./]*|\w+\.yaml) ", tree, re.MULTILINE):
        assert (ROOT / path).exists(), path
