"""Put `mlflow/experiments.yaml` on a server: experiments with notes and saved views, models.

A saved view is what the UI itself keeps under that name: a tag of the experiment that holds the
filter, the columns and the charts of the page.
"""

import json
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from posttrain.errors import ConfigError, Fault
from posttrain.lease import made
from posttrain.mlflow_client import answering, connect, experiment_id
from posttrain.plugins import option_faults
from posttrain.registry import EXPERIMENT as REGISTRY

NOTE = "mlflow.note.content"
VIEW = "mlflow.sharedViewState."
LONGEST_TAG = 5000 - 2 * len("1700000000000")


class View(BaseModel):
    """A page of runs: an MLflow search, the best or last first by the column `order`, columns as
    `tags.NAME`, `metrics.NAME` or `params.NAME`, curves by step and bars of last values."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    filter: str
    order: str
    columns: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    bars: tuple[str, ...] = ()


class Experiment(BaseModel):
    """An experiment: its note, tags of its own, the meaning of the tags of its runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    about: str
    tags: dict[str, str] = {}
    run_tags: dict[str, str] = {}
    views: dict[str, View] = {}


class Model(BaseModel):
    """A registered model and the meaning of its aliases."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    about: str
    tags: dict[str, str] = {}
    aliases: dict[str, str] = {}


class Setup(BaseModel):
    """What a server shall hold."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    experiments: dict[str, Experiment] = {}
    models: dict[str, Model] = {}


def read_setup(path: Path) -> Setup:
    """Read the file; every unknown key and wrong value at once in a `ConfigError`."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
        setup = Setup.model_validate(found)
    except ValidationError as error:
        raise ConfigError(*option_faults(error, str(path), Setup)) from None
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(Fault("cannot read", str(path), str(error), "give a YAML file")) from None
    faults = [
        Fault(f"no column `{column}`", f"{path}: {name}", "it has no kind", "tags.NAME or the like")
        for experiment in setup.experiments.values()
        for name, view in experiment.views.items()
        for column in (view.order, *view.columns)
        if column.split(".")[0] not in ("tags", "metrics", "params", "attributes")
    ]
    faults += [
        Fault(
            f"view `{name}` is too long", str(path), "MLflow stores 5000 characters", "shorten it"
        )
        for experiment in setup.experiments.values()
        for name, view in experiment.views.items()
        if len(kept_view(name, view, 0, 0)) > LONGEST_TAG
    ]
    if faults:
        raise ConfigError(*faults)
    return setup


def apply(setup: Setup, uri: str) -> list[str]:
    """Make what is missing, change what differs, leave the rest; return what was done, a line each.
    Nothing is ever deleted: views and tags may be somebody's own."""
    with answering(uri):
        client = connect(uri)
        return [
            *(
                line
                for each in setup.experiments.items()
                for line in _experiment(client, uri, *each)
            ),
            *(line for each in setup.models.items() for line in _model(client, *each)),
        ]


def links(setup: Setup, uri: str) -> list[str]:
    """The address of each view on a server that has pages."""
    if not uri.startswith("http"):
        return []
    with answering(uri):
        client = connect(uri)
        ids = {
            name: client.get_experiment_by_name(name).experiment_id for name in setup.experiments
        }
    page = "{uri}/#/experiments/{experiment}/runs?viewStateShareKey={key}{mode}"
    return [
        f"{name}: "
        + page.format(
            uri=uri.rstrip("/"),
            experiment=ids[owner],
            key=key(name),
            mode="&compareRunsMode=CHART" if view.lines or view.bars else "",
        )
        for owner, experiment in setup.experiments.items()
        for name, view in experiment.views.items()
    ]


def _experiment(client: Any, uri: str, name: str, wanted: Experiment) -> Iterator[str]:
    if client.get_experiment_by_name(name) is None:
        yield f"experiment {name}: made"
    number = experiment_id(client, uri, name, "registry" if name == REGISTRY else "artifacts")
    tags: dict[str, str] = client.get_experiment(number).tags
    note = described(wanted.about, "tag of a run", wanted.run_tags)
    for tag, value in {NOTE: note, **wanted.tags}.items():
        if tags.get(tag) != value:
            client.set_experiment_tag(number, tag, value)
            yield f"experiment {name}: {'note' if tag == NOTE else f'tag {tag}'}"
    for title, view in wanted.views.items():
        tag = f"{VIEW}{key(title)}"
        known = json.loads(tags.get(tag, "{}"))
        state = json.dumps(state_of(title, view), sort_keys=True)
        if (known.get("name"), known.get("state")) == (title, state):
            continue
        now = int(time.time() * 1000)
        client.set_experiment_tag(
            number, tag, kept_view(title, view, known.get("createdAt", now), now)
        )
        yield f"experiment {name}: view {title}"


def _model(client: Any, name: str, wanted: Model) -> Iterator[str]:
    text = described(wanted.about, "alias", wanted.aliases)
    if made(client, name, text):
        yield f"model {name}: made"
    found = client.get_registered_model(name)
    if found.description != text:
        client.update_registered_model(name, text)
        yield f"model {name}: description"
    for tag, value in wanted.tags.items():
        if found.tags.get(tag) != value:
            client.set_registered_model_tag(name, tag, value)
            yield f"model {name}: tag {tag}"


def described(about: str, head: str, meanings: dict[str, str]) -> str:
    """The text and a table of names, in Markdown."""
    rows = [f"| `{name}` | {meaning} |" for name, meaning in meanings.items()]
    return "\n".join([about, *(["", f"| {head} | meaning |", "|---|---|", *rows] if rows else [])])


def key(title: str) -> str:
    """The key of a view, which stays while its name does."""
    return sha256(title.encode()).hexdigest()[:16]


def kept_view(title: str, view: View, created: int, updated: int) -> str:
    """A saved view as the UI keeps it; times in milliseconds."""
    state = json.dumps(state_of(title, view), sort_keys=True)
    return json.dumps({"name": title, "createdAt": created, "updatedAt": updated, "state": state})


def state_of(title: str, view: View) -> dict[str, Any]:
    """A view in the words of the UI: the parts of its state that differ from the defaults."""
    section = {"uuid": key(f"section {title}"), "name": title, "display": True}
    charts = [
        {
            "uuid": key(f"{title} {kind} {metric}"),
            "type": kind,
            "metricKey": metric,
            "metricSectionId": section["uuid"],
            "deleted": False,
            "isGenerated": False,
            **({"xAxisKey": "step", "scaleType": "linear"} if kind == "LINE" else {}),
        }
        for kind, metrics in (("LINE", view.lines), ("BAR", view.bars))
        for metric in metrics
    ]
    # Ordered by the time of creation, the UI would hide a nested run below its parent.
    state: dict[str, Any] = {
        "searchFilter": view.filter,
        "orderByKey": quoted(view.order),
        "orderByAsc": False,
        "selectedColumns": [quoted(column) for column in view.columns],
    }
    if charts:
        # Otherwise sections are sorted by name, those of all other metrics among them.
        first = {"isAccordionReordered": True}
        state |= {"compareRunCharts": charts, "compareRunSections": [section], **first}
    return state


def quoted(column: str) -> str:
    """A column as the UI writes it."""
    kind, _, name = column.partition(".")
    return f"{kind}.`{name}`"
