"""Send what a run folder holds to MLflow: a parent run, a nested run per task.

`mlflow.json` in the run folder says how much of it has arrived. What may have arrived already is
sent again unchanged: name, step, time and value are the key of a point in MLflow's database, which
keeps it once. A run is found again by its token.
"""

import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from posttrain.artifacts import CURVES, file_digest, write_json
from posttrain.disk import locked
from posttrain.mlflow_client import connect, experiment_id
from posttrain.spool import began, unsent

STATE = "mlflow.json"
EXPERIMENT = "posttrain"
TOKEN = "posttrain.token"
BATCH = 1000


def nothing_sent(attempt: int) -> dict[str, Any]:
    """What `mlflow.json` says of a task at first: how many bytes of its curves have arrived, the
    time of their first line, the last step of each metric."""
    return {
        "run": None,
        "attempt": attempt,
        "began": None,
        "bytes": 0,
        "last": {},
        "done": False,
        "record": None,
    }


class Shipper:
    """Sends one run folder to one tracking server; safe to call again and again."""

    def __init__(self, run_folder: Path, uri: str, parent: str | None = None) -> None:
        self._folder = run_folder
        self._uri = uri
        self._given_parent = parent
        self._client = connect(uri)
        self._state: dict[str, Any] = {}

    def _read_state(self) -> dict[str, Any]:
        from mlflow.exceptions import MlflowException

        launch = _read_json(self._folder / "launch.json").get("id", "")
        state = _read_json(self._folder / STATE)
        fresh = {
            "uri": self._uri,
            "launch": launch,
            "token": uuid.uuid4().hex,
            "parent": self._given_parent,
            "tasks": {},
        }
        if state.get("uri") != self._uri or state.get("launch") != launch or "token" not in state:
            return fresh
        try:
            if state["parent"]:
                self._client.get_run(state["parent"])
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return fresh
            raise
        return state

    def _keep_state(self) -> None:
        write_json(self._folder / STATE, self._state)

    def sync(self) -> int:
        """Send everything new; return how many tasks have been sent whole.

        Under a lock: the pods of one run share its folder, and must share the parent run.
        """
        with locked(self._folder / "mlflow.lock"):
            self._state = self._read_state()
            parent = self._parent()
            folder = self._folder / "stages"
            launched = _read_json(self._folder / "launch.json").get("started", 0.0)
            running = [p for p in folder.glob(f"*/{CURVES}") if p.stat().st_mtime >= launched]
            finished = [p for p in folder.glob("*.json") if p.stat().st_mtime >= launched]
            for task in sorted({p.parent.name for p in running} | {p.stem for p in finished}):
                record = _read_json(folder / f"{task}.json")
                record = record if record.get("ended", 0.0) >= launched else {}
                entry = self._entry(task, record)
                if not entry["done"]:
                    self._send(task, record, entry, parent)
            return sum(entry["done"] for entry in self._state["tasks"].values())

    def close(self, status: str = "FINISHED", artifacts: tuple[Path, ...] = ()) -> None:
        """End the parent run and attach files to it."""
        self._state = self._state or self._read_state()
        parent = self._parent()
        for path in artifacts:
            if path.is_file():
                self._client.log_artifact(parent, str(path))
        self._client.set_terminated(parent, status)

    def _parent(self) -> str:
        if not self._state["parent"]:
            launch = _read_json(self._folder / "launch.json")
            tags = {f"posttrain.{k}": str(v) for k, v in launch.items() if k != "started"}
            self._state["parent"] = self._run(
                experiment_id(self._client, self._uri, EXPERIMENT, "artifacts"),
                launch.get("name") or self._folder.name,
                self._state["token"],
                {"posttrain.run": str(self._folder), **tags},
            )
            self._keep_state()
        return str(self._state["parent"])

    def _run(self, experiment: str, name: str, token: str, tags: Mapping[str, str]) -> str:
        """The run that carries a token; it is made if no earlier try, whose answer may have been
        lost, made it. The token is on disk before the run is on the server."""
        self._keep_state()
        found = self._client.search_runs([experiment], f"tags.`{TOKEN}` = '{token}'")
        run = found[0] if found else None
        run = run or self._client.create_run(experiment, run_name=name, tags={**tags, TOKEN: token})
        return str(run.info.run_id)

    def _entry(self, task: str, record: Mapping[str, Any]) -> dict[str, Any]:
        """What has been sent of a task; nothing, if the task began again since."""
        tasks = self._state["tasks"]
        entry: dict[str, Any] = tasks.setdefault(task, nothing_sent(0))
        first = began(self._curves(task))
        if entry["done"]:
            again = entry["record"] != record.get("started")
        else:
            again = None not in (first, entry["began"]) and first != entry["began"]
            if again:
                self._client.set_terminated(entry["run"], "KILLED")
        if again:
            entry = tasks[task] = nothing_sent(entry["attempt"] + 1)
        return entry

    def _curves(self, task: str) -> Path:
        return self._folder / "stages" / task / CURVES

    def _send(
        self, task: str, record: Mapping[str, Any], entry: dict[str, Any], parent: str
    ) -> None:
        from mlflow.entities import Param, RunTag

        if entry["run"] is None:
            entry["run"] = self._run(
                self._client.get_run(parent).info.experiment_id,
                task,
                f"{self._state['token']}/{task}/{entry['attempt']}",
                {"mlflow.parentRunId": parent, "task": task},
            )
        self._send_curves(entry, self._curves(task))
        if not record:
            return
        ended = int(record["ended"] * 1000)
        told = {"report": record["report"], "seconds": record["seconds"]}
        final = [
            (legal(name), value, ended, 0)
            for name, value in flat(told | {"cost": record.get("cost", {})})
            if isinstance(value, int | float)
        ]
        params = [Param(legal(k), str(v)[:6000]) for k, v in flat(record["config"])]
        tags_now = [RunTag(k, str(v)) for k, v in tags_of(record).items()]
        self._log_metrics(entry["run"], final)
        for start in range(0, len(params), 100):
            self._client.log_batch(entry["run"], params=params[start : start + 100])
        self._client.log_batch(entry["run"], tags=tags_now)
        self._log_inputs(entry["run"], record)
        self._client.set_terminated(entry["run"], "FINISHED")
        entry |= {"done": True, "record": record["started"]}
        self._keep_state()

    def _send_curves(self, entry: dict[str, Any], curves: Path) -> None:
        entry["began"] = entry["began"] or began(curves)
        for points, end in unsent(curves, entry["bytes"], entry["last"], BATCH):
            metrics = [(legal(p.name), p.value, int(p.time * 1000), p.step) for p in points]
            self._log_metrics(entry["run"], metrics)
            for point in points:
                entry["last"][point.name] = max(
                    entry["last"].get(point.name, point.step), point.step
                )
            entry["bytes"] = end
            self._keep_state()

    def _log_metrics(self, run: str, metrics: Sequence[tuple[str, float, int, int]]) -> None:
        from mlflow.entities import Metric

        for start in range(0, len(metrics), BATCH):
            some = [Metric(*each) for each in metrics[start : start + BATCH]]
            self._client.log_batch(run, metrics=some)

    def _log_inputs(self, run: str, record: Mapping[str, Any]) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag

        inputs = [
            DatasetInput(
                Dataset(name=port, digest=digest[:36], source_type="posttrain", source=digest),
                [InputTag("mlflow.data.context", record["task"])],
            )
            for port, digest in record["inputs"].items()
        ]
        if inputs:
            self._client.log_inputs(run, inputs)


def tags_of(record: Mapping[str, Any]) -> dict[str, str]:
    """What a nested run is found by: stage, commit, seed, digests, cache."""
    tags = {
        "stage": record["stage"],
        "seed": record["seed"],
        "git.sha": record["git"],
        "posttrain.key": record["key"],
        "cached": record["cached"],
        "reason": record["reason"],
        "recipe": record["recipe"],
        "image": os.environ.get("POSTTRAIN_IMAGE", "none"),
        "dvc.rev": dvc_revision(),
    }
    digests = {f"digest.{port}": out["digest"] for port, out in record["outputs"].items()}
    return {k: str(v)[:500] for k, v in (tags | digests).items()}


def legal(name: str) -> str:
    """A metric or parameter name that MLflow takes."""
    return re.sub(r"[^\w\-. :/]", "_", name)


def dvc_revision() -> str:
    """The digest of `dvc.lock` in the current directory: the version of the data it pins."""
    lock = Path("dvc.lock")
    return file_digest(lock)[:16] if lock.is_file() else "none"


def flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested mappings as `a/b` -> leaf; lists are left whole."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flat(inner, f"{prefix}/{key}" if prefix else str(key))
    else:
        yield prefix, value


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) else {}
