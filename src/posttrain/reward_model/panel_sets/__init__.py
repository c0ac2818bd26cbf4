"""Panel sets: public sets that a judge is measured on, beside its own held-out pairs.

A member reads upstream's files as they are, from the data folder or the hub, and returns a
`PanelSet`; `min_score` is a threshold for the set's headline number, none by default. To add one,
write the reader and a line in PANEL_SETS.
"""

from collections.abc import Callable, Iterable, Mapping

from posttrain.errors import ConfigError, Fault, PosttrainError
from posttrain.plugins import Plugin, build
from posttrain.reward_model.panel_sets.items import PanelSet
from posttrain.reward_model.panel_sets.pairs import hh_rlhf, judgebench, llmbar, pandalm
from posttrain.reward_model.panel_sets.reward_bench import reward_bench, reward_bench_2
from posttrain.reward_model.panel_sets.rm_bench import rm_bench

__all__ = ["PANEL_SETS", "PanelSet", "read_sets"]

PANEL_SETS: dict[str, Callable[..., PanelSet]] = {
    "rm_bench": rm_bench,
    "reward_bench": reward_bench,
    "reward_bench_2": reward_bench_2,
    "judgebench": judgebench,
    "llmbar": llmbar,
    "pandalm": pandalm,
    "hh_rlhf": hh_rlhf,
}


def read_sets(plugins: Iterable[Plugin], data_folder: str) -> Mapping[str, PanelSet]:
    """The sets by name, items read; raises every fault at once, and for a set named twice."""
    found: dict[str, PanelSet] = {}
    errors: list[PosttrainError] = []
    where = "reward_model.panel_sets"
    for plugin in plugins:
        try:
            reader = build(PANEL_SETS, plugin, where)
            if plugin.name in found:
                why = "the panel keeps one result of a set"
                mend = "name every set once"
                raise ConfigError(Fault(f"set `{plugin.name}` is named twice", where, why, mend))
            found[plugin.name] = reader(data_folder)
        except PosttrainError as error:
            errors.append(error)
    if errors:
        raise type(errors[0])(*(fault for error in errors for fault in error.faults))
    return found
