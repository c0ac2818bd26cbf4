"""Parts: the shards of a file dealt out to machines, and put together again.

Part 2/8 is the second of eight runs of shards. What a machine makes of one is a folder: the folders
of its finished shards, and `part.json`, which says what they are a part of.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from posttrain.artifacts import ROWS, write_json
from posttrain.curate.checked import versions
from posttrain.curate.mapping import Chain, Finished, place
from posttrain.curate.shards import Shard, cut
from posttrain.curate.stage import CurateConfig
from posttrain.errors import DataError, Fault

PART = "part.json"
FINISHED = "finished"
"""The kind of a part's folder."""


class Part(BaseModel):
    """Part `number` of `of`, from 1; `size` is that of the file of rows, in bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    of: int
    size: int
    options: dict[str, Any]

    @classmethod
    def named(cls, name: str, rows: Path, config: CurateConfig, operators: Chain) -> "Part":
        """The part that `name` (2/8) means; the suites that it is checked against belong to it."""
        number, of = map(int, name.split("/"))
        options = {key: config.model_dump(mode="json")[key] for key in ("filters", "shard_bytes")}
        options["suites"] = versions(operators)
        return cls(number=number, of=of, size=(rows / ROWS).stat().st_size, options=options)

    def own(self, shards: Sequence[Shard]) -> Sequence[Shard]:
        """The shards of this part."""
        return shards[
            len(shards) * (self.number - 1) // self.of : len(shards) * self.number // self.of
        ]


def keep(part: Part, work: Path, shards: Sequence[Shard], target: Path) -> None:
    """Put the finished shards in `work` into the part's folder; `work` stays for a next run."""
    target.mkdir(parents=True)
    for shard in shards:
        home = place(work, shard)
        # A link: the sketches of a part may take as much room as its rows.
        shutil.copytree(home, place(target, shard), copy_function=os.link)
    write_json(target / PART, part.model_dump(mode="json"))


def gather(
    folders: Sequence[Path], rows: Path, config: CurateConfig, operators: Chain
) -> list[Finished]:
    """The finished shards of all parts, in the order of the input; DataError unless there is
    each part once, made of these rows with these options."""
    parts = {
        folder: Part.model_validate_json((folder / PART).read_text(encoding="utf-8"))
        for folder in folders
    }
    of = max(part.of for part in parts.values())
    wanted = Part.named(f"1/{of}", rows, config, operators)
    mend = "run `curate_map` for it again, with the rows and options of `curate_reduce`"
    faults = [
        Fault("not a part of these rows", str(folder), why, mend)
        for folder, part in parts.items()
        for why in _differences(part, wanted)
    ]
    numbers = sorted(part.number for part in parts.values())
    for number in range(1, of + 1):
        if (count := numbers.count(number)) != 1:
            why = f"there are {count} folders of it, and there must be one of each"
            faults.append(Fault(f"part {number}/{of} is not there once", "--finished", why, mend))
    if faults:
        raise DataError(*faults)
    shards = cut(rows / ROWS, config.shard_bytes)
    ordered = sorted(parts.items(), key=lambda pair: pair[1].number)
    return [Finished(folder, shard) for folder, part in ordered for shard in part.own(shards)]


def _differences(part: Part, wanted: Part) -> list[str]:
    found = {**part.options, "size": part.size, "of": part.of}
    meant = {**wanted.options, "size": wanted.size, "of": wanted.of}
    names = {"size": "bytes of rows", "of": "parts"}
    return [
        f"it was made with {names.get(key, key)} {found[key]}, and these are {value}"
        for key, value in meant.items()
        if found[key] != value
    ]
