"""Fill data/imports: public files that `.dvc` files name by URL and md5.

`python scripts/imports.py [NAME ...]` (all of them by default) puts each into DVC's cache and
checks it out. It takes a copy of the same name in `POSTTRAIN_DATA` where there is one, else the
URL; in either case only the recorded bytes get in. Exit codes are those of `posttrain`.
"""

import hashlib
import os
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from posttrain.cli import DEFAULT_DATA
from posttrain.errors import ConfigError, DataError, Fault, PosttrainError, TransientError, accepted

IMPORTS = Path("data/imports")
TIMEOUT_SECONDS = 60


class Import(NamedTuple):
    """A `.dvc` file: the name below data/imports, where it is from and what it must be."""

    name: str
    url: str
    md5: str

    @property
    def noted(self) -> Path:
        """The `.dvc` file."""
        return IMPORTS / f"{self.name}.dvc"


def recorded() -> dict[str, Import]:
    """Every import by name."""
    found = {}
    for path in sorted(IMPORTS.rglob("*.dvc")):
        about: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
        name = path.relative_to(IMPORTS).with_suffix("").as_posix()
        found[name] = Import(name, about["deps"][0]["path"], about["outs"][0]["md5"])
    return found


def fetch(wanted: Import, copies: Path, cache: Path) -> str:
    """Put the file into the cache; return where it came from."""
    held = cache / "files/md5" / wanted.md5[:2] / wanted.md5[2:]
    if held.is_file():
        return "the cache"
    copy = copies / wanted.name
    origin = str(copy) if copy.is_file() else wanted.url
    data = copy.read_bytes() if copy.is_file() else download(wanted)
    found = hashlib.md5(data, usedforsecurity=False).hexdigest()
    if found != wanted.md5:
        why = f"its md5 is {found}, and {wanted.noted} records {wanted.md5}"
        mend = "take the recorded file; if the new one is meant, `dvc update` its .dvc file"
        raise DataError(Fault("a source has changed", origin, why, mend))
    held.parent.mkdir(parents=True, exist_ok=True)
    partial = held.with_name(f".{held.name}.{os.getpid()}.partial")
    partial.write_bytes(data)
    # DVC hands out links to what is in the cache: nobody may write through one.
    partial.chmod(0o444)
    partial.replace(held)
    return origin


def download(wanted: Import) -> bytes:
    """The bytes behind the URL."""
    try:
        with urllib.request.urlopen(wanted.url, timeout=TIMEOUT_SECONDS) as answer:
            data: bytes = answer.read()
            return data
    except OSError as error:
        mend = f"run it again, or put a copy at POSTTRAIN_DATA/{wanted.name}"
        raise TransientError(Fault("cannot fetch", wanted.url, str(error), mend)) from error


def main(names: Sequence[str]) -> int:
    """Fetch all, tell of all that failed, and check out the others."""
    known = recorded()
    copies = Path(os.environ.get("POSTTRAIN_DATA", DEFAULT_DATA))
    cache = Path(dvc("cache", "dir").strip())
    failed: list[PosttrainError] = []
    ready = []
    for name in names or known:
        try:
            if name not in known:
                mend = accepted(name, known)
                raise ConfigError(Fault("no such import", name, "no .dvc file names it", mend))
            print(f"{name}: from {fetch(known[name], copies, cache)}")
            ready.append(str(known[name].noted))
        except PosttrainError as error:
            failed.append(error)
    if ready:
        dvc("checkout", *ready)
    for fault in [fault for error in failed for fault in error.faults]:
        print(f"error: {fault}", file=sys.stderr)
    return max((error.exit_code for error in failed), default=0)


def dvc(*arguments: str) -> str:
    """What a DVC command prints; its own message and exit code 2 where it fails."""
    line = [sys.executable, "-m", "dvc", *arguments]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        mend = f"run `dvc {' '.join(arguments)}` and mend what it says"
        raise ConfigError(Fault("DVC failed", "dvc", done.stderr.strip(), mend))
    return done.stdout


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except PosttrainError as error:
        print("\n".join(f"error: {fault}" for fault in error.faults), file=sys.stderr)
        sys.exit(error.exit_code)
