"""Every published bundle builds, says its paper, and stands beneath what a recipe says."""

import re

import pytest

from posttrain.cli import layers_of
from posttrain.config import resolve
from posttrain.errors import ConfigError
from posttrain.methods import load_method, method_names
from posttrain.rl.config import RLConfig
from posttrain.rl.parts import build_parts

METHODS = method_names("rl")


@pytest.mark.parametrize("name", METHODS)
def test_a_method_builds_and_names_its_paper(name: str) -> None:
    method = load_method(name)
    assert re.fullmatch(r"arXiv:\d{4}\.\d{4,5}", method.paper)
    assert method.about.endswith(".")
    config = resolve(RLConfig, "rl", "rl", [], {"method": name})
    build_parts(config, has_judge=True, has_demonstrations=True)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_goes_with_the_demo(name: str) -> None:
    config = resolve(RLConfig, "rl", "rl", layers_of("demo", ""), {"method": name})
    build_parts(config, has_judge=True, has_demonstrations=True)
    assert config.steps == 50


def test_what_a_recipe_or_flag_says_outranks_the_method() -> None:
    layers = layers_of("", '{"rl": {"method": "dapo", "max_draws": 3}}')
    config = resolve(RLConfig, "rl", "rl", layers, {"group_size": 4})
    assert (config.max_draws, config.group_size) == (3, 4)
    assert config.loss.options["clip_high"] == 0.28


def test_an_unknown_method_is_told_with_its_place() -> None:
    with pytest.raises(ConfigError, match="did you mean `dapo`") as caught:
        resolve(RLConfig, "rl", "rl", layers_of("", '{"rl": {"method": "dappo"}}'), {})
    assert caught.value.faults[0].where == "--overrides:rl.method"
