"""Reading a judge, of whatever kind, from its folder: for whoever asks one for scores."""

from pathlib import Path

from pydantic import ValidationError

from posttrain.artifacts import write_json
from posttrain.errors import ConfigError, DataError, Fault
from posttrain.plugins import Plugin, build, options_of
from posttrain.reward_model.kinds import KINDS, Kind
from posttrain.reward_model.panel import PANEL, read_panel
from posttrain.reward_model.protocol import Judge
from posttrain.reward_model.tournament import Tournament

JUDGE_FILE = "judge.json"
"""The kind of a judge and its options; a folder without one is a `bradley_terry`."""


def load_judge(folder: Path, *, require_panel: bool = True, allow_failed: bool = False) -> Judge:
    """Read a judge folder; raise DataError when its panel failed or is not there.

    `allow_failed` takes a judge that failed its panel, not one that never stood before it. A judge
    that compares responses holds a `Tournament` when it is asked for scores.
    """
    if require_panel:
        panel = read_panel(folder)
        if not panel.passed and not allow_failed:
            raise DataError(
                Fault(
                    "the judge did not pass its panel",
                    str(folder / PANEL),
                    "; ".join(panel.reasons),
                    "train it on more or better preferences, set the thresholds of"
                    " `reward_model` to what is good enough, or use it all the same with"
                    " `allow_failed_judge`",
                )
            )
    found = kind_of(folder).read(folder)
    return Tournament(found) if not isinstance(found, Judge) else found


def kind_of(folder: Path) -> Kind:
    """The kind that wrote a folder, with its options."""
    path = folder / JUDGE_FILE
    if not path.is_file():
        return KINDS["bradley_terry"]()
    try:
        return build(KINDS, Plugin.model_validate_json(path.read_bytes()), str(path))()
    except (OSError, ValidationError, ConfigError) as error:
        why = str(error).split("\n")[0]
        mend = "make the judge again with `posttrain reward_model`"
        raise DataError(Fault("the judge's kind cannot be read", str(path), why, mend)) from None


def write_kind(folder: Path, kind: Plugin) -> None:
    """Write the kind with all of its options, defaults too: those may change, the judge not."""
    options = options_of(KINDS[kind.name]).model_validate(kind.options).model_dump(mode="json")
    if kind.name != "bradley_terry":
        write_json(folder / JUDGE_FILE, {"name": kind.name, "options": options})
