"""Recipes and options: merged in the stated order, and every misfit told with file and key."""

from pathlib import Path
from typing import Annotated

import pytest

from posttrain.config import (
    Family,
    Field,
    Plugin,
    StageConfig,
    flag_value,
    load_recipe,
    parse_overrides,
    resolve,
)
from posttrain.errors import ConfigError

TASKS = {"sft": "sft", "rejected_sft": "sft", "rl": "rl"}


def shift(value: float, /, *, by: float = 1.0) -> float:
    """Shift."""
    return value + by


FAMILY = {"shift": shift}


class Config(StageConfig):
    epochs: float = Field(1.0, gt=0, description="passes over the data")
    plugin: Annotated[Plugin, Family("tests.test_config:FAMILY")] = Plugin(name="shift")
    plugins: list[Annotated[Plugin, Family("tests.test_config:FAMILY")]] = []


def recipe(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_later_layers_win(tmp_path: Path) -> None:
    path = recipe(tmp_path, "seed: 4\nsft: {epochs: 2}\nrejected_sft: {epochs: 3}\n")
    layers = [load_recipe(str(path), TASKS)]
    over = parse_overrides('{"rejected_sft": {"epochs": 5}}', TASKS)
    assert over
    assert resolve(Config, "sft", "sft", layers, {}).epochs == 2
    assert resolve(Config, "sft", "rejected_sft", layers, {}).epochs == 3
    assert resolve(Config, "sft", "rejected_sft", [*layers, over], {}).epochs == 5
    flagged = resolve(Config, "sft", "rejected_sft", [*layers, over], {"epochs": 7})
    assert (flagged.epochs, flagged.seed) == (7, 4)


def test_a_recipe_extends_another(tmp_path: Path) -> None:
    (tmp_path / "parent.yaml").write_text("seed: 2\nsft: {epochs: 2, seed: 9}\n")
    path = recipe(tmp_path, f"extends: {tmp_path}/parent.yaml\nsft: {{epochs: 4}}\n")
    merged = load_recipe(str(path), TASKS)
    assert merged.seed == 2
    assert merged.sections == {"sft": {"epochs": 4, "seed": 9}}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("stf: {}\n", "did you mean `sft`"),
        ("sft: [1]\n", "is not a mapping"),
        ("sft: {epochs: 1\n", "not YAML"),
        ("[1, 2]\n", "not a mapping"),
    ],
)
def test_a_bad_recipe_file_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        load_recipe(str(recipe(tmp_path, text)), TASKS)


def test_an_unknown_recipe_names_the_known() -> None:
    with pytest.raises(ConfigError, match=r"accepted: .*demo"):
        load_recipe("demoo", TASKS)


def test_all_misfits_are_told_at_once_with_file_and_key(tmp_path: Path) -> None:
    path = recipe(tmp_path, "sft: {epochs: -1, epohcs: 2, plugin: {name: shift, byy: 2}}\n")
    with pytest.raises(ConfigError) as caught:
        resolve(Config, "sft", "sft", [load_recipe(str(path), TASKS)], {})
    told = str(caught.value)
    assert f"{path}:sft.epochs" in told
    assert f"{path}:sft.epohcs" in told
    assert "did you mean `epochs`" in told
    assert "did you mean `by`" in told


@pytest.mark.parametrize("key", ["plugin", "plugins"])
def test_plugin_misfits_are_told_before_any_work(tmp_path: Path, key: str) -> None:
    value = "{name: shift, byy: 2}"
    path = recipe(tmp_path, f"sft: {{{key}: {value if key == 'plugin' else f'[{value}]'}}}\n")
    with pytest.raises(ConfigError, match="did you mean `by`"):
        resolve(Config, "sft", "sft", [load_recipe(str(path), TASKS)], {})


@pytest.mark.parametrize(
    ("text", "value"), [("3", 3), ("{name: clip}", {"name": "clip"}), ("grpo", "grpo"), ("{", "{")]
)
def test_flags_are_read_as_yaml(text: str, value: object) -> None:
    assert flag_value(text) == value


def test_small_numbers_written_with_an_exponent_are_numbers() -> None:
    assert resolve(Config, "sft", "sft", [], {"epochs": flag_value("1e-3")}).epochs == 1e-3
