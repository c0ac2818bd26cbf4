"""Options that do not go together are told, both of them and why, before anything is read."""

from typing import Any

import pytest

from posttrain.errors import ConfigError
from posttrain.rl.config import RLConfig
from posttrain.rl.misfits import misfits
from posttrain.rl.parts import build_parts

MISFITS: list[tuple[dict[str, Any], str]] = [
    ({"advantage": "gae"}, "`advantage: gae` with `critic: none`"),
    ({"critic": "single"}, "`critic: single` with `advantage: grpo`"),
    ({"transforms": ["asyppo_masks"]}, "`transforms: asyppo_masks` with `critic: none`"),
    ({"group_size": 1}, "`group_size: 1` with `advantage: grpo`"),
    ({"loss": "decoupled_ppo"}, "`loss: decoupled_ppo` with `old_logps: engine`"),
    ({"replay": "rr_fifo", "old_logps": "recompute"}, "`replay: rr_fifo` with `old_logps"),
    ({"engine": {"name": "vllm_server", "url": "http://x"}}, "`engine: vllm_server` in `rl`"),
    ({"loss": "ipa"}, "`loss: ipa` with `old_logps: engine`"),
    ({"reward_gate": "gra", "rewards": ["format"]}, "over `verifier`, which is not among"),
    (
        {"strategy": {"name": "external", "external_per_group": 2}, "group_size": 2},
        "`external_per_group: 2` and `group_size: 2`",
    ),
    ({"controller": "partial_rollout", "environment": "calculator"}, "`environment: calculator`"),
    ({"controller": "partial_rollout", "budget": "dars"}, "with `budget: dars`"),
    ({"strategy": "external"}, "no demonstrations"),
    ({"loss": {"name": "rl_plus", "uniform": "inv_vocab"}}, "and no `vocabulary`"),
    ({"precision": "unified_fp8", "engine": "vllm"}, "with `engine: vllm`"),
    ({"sharding": "fsdp2", "lora_rank": 2}, "`sharding: fsdp2` with `lora_rank: 2`"),
    ({"sharding": "fsdp2", "precision": "unified_fp8"}, "with `precision: unified_fp8`"),
]


@pytest.mark.parametrize(("options", "message"), MISFITS)
def test_a_misfit_names_both_options(options: dict[str, Any], message: str) -> None:
    config = RLConfig.model_validate(options)
    with pytest.raises(ConfigError) as caught:
        build_parts(config, has_judge=False, has_demonstrations=False)
    assert message in "\n".join(map(str, caught.value.faults))


def test_all_misfits_are_told_at_once() -> None:
    config = RLConfig.model_validate({"advantage": "gae", "strategy": "external"})
    assert len(misfits(config, has_demonstrations=False)) == 2


def test_the_defaults_fit() -> None:
    assert misfits(RLConfig(), has_demonstrations=False) == []
