"""Plug-ins: names and options are checked before any work, and the message says what fits."""

import pytest

from posttrain.errors import ConfigError
from posttrain.plugins import Plugin, build


def double(value: float, /, *, shift: float = 0.0) -> float:
    """Twice the value, shifted."""
    return 2 * value + shift


class Counter:
    """Counts from a start."""

    def __init__(self, *, start: int) -> None:
        self.at = start


FAMILY = {"double": double}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("double", 6.0),
        ({"name": "double", "shift": 1}, 7.0),
        ({"name": "double", "shift": "0.5"}, 6.5),
    ],
)
def test_build_binds_options(given: object, expected: float) -> None:
    assert build(FAMILY, Plugin.model_validate(given))(3.0) == expected


def test_a_class_is_a_plugin_too() -> None:
    assert (
        build({"counter": Counter}, Plugin.model_validate({"name": "counter", "start": 4}))().at
        == 4
    )


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("doubel", "did you mean `double`"),
        ({"name": "double", "shfit": 1}, "did you mean `shift`"),
        ({"name": "double", "shift": "far"}, "bad value for `shift`"),
    ],
)
def test_misfits_are_told(given: object, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        build(FAMILY, Plugin.model_validate(given), "rl.advantage")


def test_a_missing_option_is_told() -> None:
    with pytest.raises(ConfigError, match="start"):
        build({"counter": Counter}, Plugin(name="counter"))


def test_yaml_forms_round_trip() -> None:
    for given in ("double", {"name": "double", "shift": 1.0}):
        assert Plugin.model_validate(given).model_dump() == given
