"""Imports of public files: only the recorded bytes get in, from a copy or from the URL."""

import functools
import hashlib
import http.server
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from posttrain.artifacts import read_rows
from posttrain.cli import DEFAULT_DATA, main
from posttrain.records import RawRow

ROOT = Path(__file__).parents[1]
RECORDED = sorted((ROOT / "data/imports").rglob("*.dvc"))
BYTES = b'{"question": "2 + 2?", "answer": "#### 4"}\n'
MD5 = hashlib.md5(BYTES).hexdigest()


def about(path: Path) -> dict[str, Any]:
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", RECORDED, ids=lambda p: p.stem)
def test_an_import_names_one_commit_and_its_digest(path: Path) -> None:
    recorded = about(path)
    (source,), (out,) = recorded["deps"], recorded["outs"]
    host, commit = source["path"].split("/")[2], source["path"].split("/")[5]
    assert host == "raw.githubusercontent.com"
    assert len(bytes.fromhex(commit)) == 20
    assert len(bytes.fromhex(out["md5"])) == 16
    assert out["path"] == path.stem
    assert recorded["frozen"], "a frozen import is fetched when somebody asks, not by repro"


def workspace(folder: Path, url: str) -> Path:
    """A repository with one import of BYTES."""
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q"], cwd=folder, check=True)
    home = folder / "data/imports/gsm8k"
    home.mkdir(parents=True)
    (home / "test.jsonl.dvc").write_text(
        f"frozen: true\ndeps:\n- path: {url}\n"
        f"outs:\n- md5: {MD5}\n  size: {len(BYTES)}\n  hash: md5\n  path: test.jsonl\n"
    )
    return home / "test.jsonl"


def fill(folder: Path, copies: Path, *names: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts/imports.py"), *names],
        cwd=folder,
        env=os.environ | {"POSTTRAIN_DATA": str(copies)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A web server and the folder that it serves."""
    folder = tmp_path / "site"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/test.jsonl", folder / "test.jsonl"
        server.shutdown()


def test_a_copy_with_the_same_md5_needs_no_network(tmp_path: Path) -> None:
    repository, copies = tmp_path / "repository", tmp_path / "copies"
    for folder in (repository, copies / "gsm8k"):
        folder.mkdir(parents=True)
    target = workspace(repository, "http://127.0.0.1:9/absent.jsonl")
    (copies / "gsm8k/test.jsonl").write_bytes(BYTES + b"{}\n")
    refused = fill(repository, copies)
    assert refused.returncode == 3
    changed = hashlib.md5(BYTES + b"{}\n").hexdigest()
    assert f"its md5 is {changed}, and data/imports/gsm8k/test.jsonl.dvc" in refused.stderr
    assert MD5 in refused.stderr
    assert not target.exists()

    (copies / "gsm8k/test.jsonl").write_bytes(BYTES)
    done = fill(repository, copies)
    assert done.returncode == 0, done.stderr
    assert target.read_bytes() == BYTES
    (copies / "gsm8k/test.jsonl").unlink()
    target.unlink()
    assert "from the cache" in fill(repository, copies).stdout
    assert target.read_bytes() == BYTES
    status = subprocess.run(
        [sys.executable, "-m", "dvc", "status", "data/imports/gsm8k/test.jsonl.dvc"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "changed outs" not in status


@pytest.mark.slow
def test_the_url_serves_where_there_is_no_copy(tmp_path: Path, site: tuple[str, Path]) -> None:
    url, served = site
    repository = tmp_path / "repository"
    repository.mkdir()
    target = workspace(repository, url)
    absent = fill(repository, tmp_path / "none")
    assert absent.returncode == 75
    assert f"cannot fetch\n  where: {url}\n  why:   HTTP Error 404" in absent.stderr
    served.write_bytes(BYTES.replace(b"4", b"5"))
    changed = fill(repository, tmp_path / "none")
    assert changed.returncode == 3
    assert f"its md5 is {hashlib.md5(served.read_bytes()).hexdigest()}" in changed.stderr
    assert not target.exists()
    served.write_bytes(BYTES)
    assert fill(repository, tmp_path / "none").returncode == 0
    assert target.read_bytes() == BYTES
    unknown = fill(repository, tmp_path / "none", "gsm8k/tset.jsonl")
    assert unknown.returncode == 2
    assert "gsm8k/test.jsonl" in unknown.stderr


@pytest.mark.realdata
def test_the_recorded_imports_are_the_copies_that_stand_beside(tmp_path: Path) -> None:
    """And a source reads them as it reads the folder of copies."""
    copies = (ROOT / os.environ.get("POSTTRAIN_DATA", DEFAULT_DATA)).resolve()
    if not copies.is_dir():
        pytest.skip(f"no data at {copies}: set POSTTRAIN_DATA")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q"], cwd=tmp_path, check=True)
    for path in RECORDED:
        home = tmp_path / path.parent.relative_to(ROOT)
        home.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, home)
    done = fill(tmp_path, copies)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f": from {copies}") == len(RECORDED)
    folder = tmp_path / "data/imports"
    source = {"name": "math_files", "folder": str(folder), "sets": ["gsm8k", "mawps"], "limit": 5}
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump({"about": "imports", "raw": {"sources": [source]}}))
    run = ["--store", str(tmp_path / "store"), "--run-folder", str(tmp_path / "run")]
    rows = tmp_path / "rows"
    line = ["raw", "--recipe", str(recipe), "--rows", str(rows), "--tracking", "off", *run]
    assert main(line) == 0
    sources = {row.source for row in read_rows(rows, RawRow)}
    assert {"gsm8k", "mawps/addsub", "mawps/singleop"} <= sources
