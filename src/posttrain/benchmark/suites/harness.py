"""Tasks of lm-evaluation-harness as suites: `{name: lm_eval, task: gsm8k}`.

The harness writes the prompts (few-shot examples by its own seed), filters the answers and measures
them; our engine answers, and the mean over items with its interval, the rows and the report are
those of any suite. Rows come from files of the data folder, else from where the task has them.
Left out: tasks whose metrics are no means over items, and those that begin the policy's answer.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from posttrain.benchmark.metrics import Metric, Table, mean_of, pooled
from posttrain.benchmark.suites.sources import probe_hub, prompt_of
from posttrain.benchmark.suites.suite import Item, Place, Suite
from posttrain.errors import ConfigError, DataError, Fault, accepted
from posttrain.raw.sources.source import file_lines
from posttrain.records import content_id
from posttrain.statistics import Interval, clustered_share

WHERE = "benchmark.suites.lm_eval"
FEWSHOT_SEED = 1234
"""The harness's own default."""

DECLARED = re.compile(r'^"?(task|group)"?:[ \t]*["\']?([\w.-]+)["\']?[ \t]*$', re.MULTILINE)
NO_FILTER = "none"
SPLITS = ("training_split", "validation_split", "test_split")
ANSWERED = ("generate_until", "multiple_choice")


def lm_eval(
    *,
    task: str,
    files: dict[str, str] | None = None,
    where: dict[str, Any] | None = None,
    metric: str = "",
    num_fewshot: Annotated[int | None, Field(ge=0)] = None,
    limit: Annotated[int | None, Field(ge=1)] = None,
    max_new_tokens: Annotated[int | None, Field(ge=1)] = None,
) -> Suite:
    """A task of lm-evaluation-harness (arXiv:2405.14782), decoded as the task says.

    `files`: split -> a file below the data folder, in place of the hub; `where`: only rows with
    these values, as one file holds many tasks. `metric`: the headline, the task's first by default.
    """
    config = config_of(task)
    names = mean_metrics(task, config)
    if metric and metric not in names:
        raise ConfigError(
            Fault(
                f"no metric `{metric}` in `{task}`", WHERE, "see the task", accepted(metric, names)
            )
        )
    shots = {} if num_fewshot is None else {"num_fewshot": num_fewshot}
    headline = metric or names[0]
    source = Harness(task, tuple(sorted((files or {}).items())), where or {}, shots)
    version = (config.get("metadata") or {}).get("version", "unversioned")
    return Suite(
        name=f"lm_eval.{task}",
        about=f"{task} of lm-evaluation-harness, version {version} of the task",
        source=source,
        scorer="lm_eval",
        metric=headline,
        metrics=tuple(mean_metric(name) for name in names if name != headline),
        limit=limit,
        samples=1,
        max_new_tokens=max_new_tokens,
        scoring={"harness": source, "headline": headline, "longest": max_new_tokens},
        paper="arXiv:2405.14782; the task's own stands in its folder lm_eval/tasks",
        licence="that of the task's data",
        contamination="not checked: the harness's tasks are public",
    )


def config_of(name: str) -> dict[str, Any]:
    """What the harness declares of a task; ConfigError where there is no such task, or where our
    engines cannot answer it."""
    if find_spec("lm_eval") is None:
        why, mend = "`lm_eval` suites run through it", "pip install 'lm-eval==0.4.13'"
        raise ConfigError(Fault("lm-evaluation-harness is not installed", WHERE, why, mend))
    path = yaml_of(name)
    from lm_eval.tasks._yaml_loader import load_yaml

    config: dict[str, Any] = load_yaml(path)
    reasons = {
        f"its output type is {config.get('output_type')}, engines answer {' and '.join(ANSWERED)}":
            config.get("output_type") not in ANSWERED or "class" in config,
        "it begins the answer for the policy": bool(config.get("gen_prefix")),
        "it asks for several answers to an item": int(config.get("repeats") or 1) > 1,
        "it runs generated programs outside our sandbox": bool(config.get("unsafe_code")),
    }  # fmt: skip
    if faults := [
        Fault(f"task `{name}` cannot be run", WHERE, why, "take another task, or a suite of ours")
        for why, holds in reasons.items()
        if holds
    ]:
        raise ConfigError(*faults)
    return config


def yaml_of(name: str) -> Path:
    """The file that declares a task; ConfigError where none does, or where it is a group."""
    known = declarations()
    if name not in known:
        near = get_close_matches(name, known, n=5)
        mend = f"did you mean {' or '.join(near)}?" if near else "see `lm_eval ls tasks`"
        raise ConfigError(Fault(f"unknown task `{name}`", WHERE, "lm-eval has no such task", mend))
    kind, path = known[name]
    if kind == "group":
        parts = [
            each for each, (what, _) in known.items() if each.startswith(name) and what == "task"
        ]
        why = f"it stands for several, such as {', '.join(parts[:5])}"
        raise ConfigError(
            Fault(f"`{name}` is not one task", WHERE, why, "name its tasks one by one")
        )
    return path


@lru_cache
def declarations() -> dict[str, tuple[str, Path]]:
    """Name -> task or group, and its file. The harness's own index parses all 14,000: 10 s."""
    import lm_eval.tasks

    files = sorted(Path(lm_eval.tasks.__file__).parent.rglob("*.yaml"))
    return {
        name: (kind, path)
        for path in files
        for kind, name in DECLARED.findall(path.read_text(encoding="utf-8", errors="replace"))
    }


def mean_metrics(name: str, config: Mapping[str, Any]) -> list[str]:
    """Metrics that are means over items and better when higher, `METRIC.FILTER` where answers are
    filtered; ConfigError where a task has none."""
    from lm_eval.api.metrics import mean
    from lm_eval.api.registry import DEFAULT_METRIC_REGISTRY, get_metric_aggregation

    listed = config.get("metric_list") or [
        {"metric": each} for each in DEFAULT_METRIC_REGISTRY[config["output_type"]]
    ]
    means = [
        str(each["metric"])
        for each in listed
        if each.get("higher_is_better", True)
        # Of options it asks what decoding would write, which likelihoods do not tell.
        and (config["output_type"], each["metric"]) != ("multiple_choice", "exact_match")
        and (each.get("aggregation") or get_metric_aggregation(each["metric"])) in ("mean", mean)
    ]
    if not means:
        why, mend = "none of its metrics is a mean over items", "take another task"
        raise ConfigError(Fault(f"task `{name}` cannot be run", WHERE, why, mend))
    filters = [each["name"] for each in config.get("filter_list") or [{"name": NO_FILTER}]]
    return [metric_name(metric, of) for of in filters for metric in means]


def mean_metric(name: str) -> Metric:
    """The mean of a measure over items: a share's interval where it is one, else resampled."""

    def estimate(table: Table) -> tuple[Interval, int] | None:
        values_I = table.get(name)
        if values_I is None:
            return None
        if values_I.min() >= 0 and values_I.max() <= 1:
            return clustered_share(values_I), len(values_I)
        return pooled(name, mean_of(name)).estimate(table)

    return Metric(name, estimate)


def metric_name(metric: str, answers: str) -> str:
    """A metric on answers that went through a filter."""
    return metric if answers == NO_FILTER else f"{metric}.{answers}"


class Asked(NamedTuple):
    """A task of the harness with its requests, by id of the item that each belongs to."""

    task: Any
    requests: Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Harness:
    """The items of a task. `asked` keeps what the scorer needs once they have been read."""

    task: str
    files: tuple[tuple[str, str], ...] = ()
    where: Mapping[str, Any] = field(default_factory=dict, hash=False)
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    asked: dict[str, Asked] = field(default_factory=dict, hash=False, compare=False)

    def items(self, place: Place) -> list[Item]:
        logging.getLogger("lm_eval").setLevel(logging.ERROR)
        task = self._loaded(place)
        requests: dict[str, list[Any]] = {}
        items = []
        for number, doc in task.doc_iterator():
            context = task.fewshot_context(
                doc,
                num_fewshot=task.config.num_fewshot or 0,
                apply_chat_template=True,
                chat_template=one_turn,
            )
            made = task.construct_requests(
                doc=doc,
                ctx=context,
                metadata=(self.task, number, 1),
                apply_chat_template=True,
                chat_template=one_turn,
            )
            own = made if isinstance(made, list) else [made]
            item = item_of(self.task, task, doc, own)
            requests[item.prompt.id] = own
            items.append(item)
        self.asked[self.task] = Asked(task, requests)
        return items

    def local(self, place: Place) -> dict[str, Path]:
        """The files by split, if the data folder holds them all."""
        paths = {split: Path(place.data_folder) / name for split, name in self.files}
        whole = place.data_folder and all(path.is_file() for path in paths.values())
        return paths if whole else {}

    def _loaded(self, place: Place) -> Any:
        """The task with its rows."""
        from jinja2 import TemplateError
        from lm_eval.api.task import ConfigurableTask

        config = {key: of for key, of in config_of(self.task).items() if key != "tag"}
        config |= self.options
        if self.files:
            rows = self._rows(place)
            config |= {"dataset_path": None, "dataset_name": None, "custom_dataset": rows}
            config |= {key: None for key in SPLITS if config.get(key) not in dict(self.files)}
        if not config.get("num_fewshot"):
            # Else the harness wants the examples' split, which nobody reads.
            config |= {"fewshot_split": None, "fewshot_config": None}
        try:
            if not self.files:
                probe_hub()
            task = ConfigurableTask(config=config)
        except (OSError, ValueError, LookupError, TypeError, TemplateError) as error:
            why = f"{type(error).__name__}: {str(error).split(chr(10))[0][:160]}"
            mend = "make the hub reachable, or give `files` of the data folder by split, with the"
            where = f"lm_eval: {self.task}, {config['dataset_path'] or dict(self.files)}"
            raise ConfigError(
                Fault("no items for a suite", where, why, f"{mend} columns that the task reads")
            ) from None
        task.set_fewshot_seed(FEWSHOT_SEED)
        return task

    def _rows(self, place: Place) -> Any:
        """The data set of the files, as the harness calls for one."""
        paths = self.local(place)
        if not paths:
            given = ", ".join(name for _, name in self.files)
            why, mend = f"{given}: not all are there", "set POSTTRAIN_DATA, or mend `files`"
            raise ConfigError(Fault("no items for a suite", place.data_folder or WHERE, why, mend))
        from datasets import Dataset

        found = {}
        for split, path in paths.items():
            rows = [line.values for line in file_lines(path)]
            kept = [row for row in rows if all(row.get(k) == v for k, v in self.where.items())]
            if not kept:
                why = f"of {len(rows)} rows none has {dict(self.where)}"
                raise DataError(Fault("no rows for a task", str(path), why, "mend `where`"))
            found[split] = Dataset.from_list(kept)
        return lambda **_: found


def one_turn(messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool = True) -> str:
    """The user's turn, after what the harness would say as the system: engines take one turn, and
    write it with the policy's own chat template."""
    return "\n\n".join(message["content"].strip() for message in messages)


def item_of(name: str, task: Any, doc: Mapping[str, Any], requests: Sequence[Any]) -> Item:
    """A question of the harness as an item of ours; its id tells whole prompts apart."""
    target, context = task.doc_to_target(doc), requests[0].args[0]
    options: tuple[str, ...] = ()
    if task.OUTPUT_TYPE == "multiple_choice":
        options = tuple(request.args[1] for request in requests)
        target = options[target] if isinstance(target, int) else target
    if not isinstance(context, str) or len({request.args[0] for request in requests}) > 1:
        why, mend = "an item of it is more than one prompt", "take another task"
        raise ConfigError(Fault(f"task `{name}` cannot be run", WHERE, why, mend))
    prompt = prompt_of("text", context, str(target), f"lm_eval/{name}")
    whole = content_id(prompt.id, *options, prompt.answer)
    return Item(prompt.model_copy(update={"id": whole}), options)
