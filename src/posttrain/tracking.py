"""Send what a run folder holds to MLflow: a parent run, a nested run per task.

The run folder is the spool: records and curves are on disk first, and `mlflow.json` says how
much of them has arrived. An unreachable server therefore loses nothing and stops nothing;
`posttrain track RUN` sends the rest later.
"""

import json
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from posttrain.artifacts import CURVES, file_digest, write_json
from posttrain.execution import locked
from posttrain.journal import read_curves

STATE = "mlflow.json"
EXPERIMENT = "posttrain"
BATCH = 1000
SEND_EVERY_SECONDS = 5.0

QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "GIT_PYTHON_REFRESH": "quiet",
}


class Shipper:
    """Sends one run folder to one tracking server; safe to call again and again."""

    def __init__(self, run_folder: Path, uri: str, parent: str | None = None) -> None:
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient

        if uri.startswith("sqlite:///"):
            Path(uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        self._folder = run_folder
        self._uri = uri
        self._given_parent = parent
        self._client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        self._state: dict[str, Any] = {}

    def _read_state(self) -> dict[str, Any]:
        from mlflow.exceptions import MlflowException

        launch = _read_json(self._folder / "launch.json").get("id", "")
        state = _read_json(self._folder / STATE)
        fresh = {"uri": self._uri, "launch": launch, "parent": self._given_parent, "tasks": {}}
        if state.get("uri") != self._uri or state.get("launch") != launch:
            return fresh
        try:
            if state["parent"]:
                self._client.get_run(state["parent"])
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return fresh
            raise
        return state

    def sync(self) -> int:
        """Send everything new; return how many tasks have been sent whole.

        Under a lock: the pods of one run share its folder, and must share the parent run.
        """
        with locked(self._folder / "mlflow.lock"):
            self._state = self._read_state()
            return self._sync()

    def _sync(self) -> int:
        parent = self._parent()
        folder = self._folder / "stages"
        launched = _read_json(self._folder / "launch.json").get("started", 0.0)
        running = [p for p in folder.glob(f"*/{CURVES}") if p.stat().st_mtime >= launched]
        finished = [p for p in folder.glob("*.json") if p.stat().st_mtime >= launched]
        for task in sorted({p.parent.name for p in running} | {p.stem for p in finished}):
            record = _read_json(folder / f"{task}.json")
            record = record if record.get("ended", 0.0) >= launched else {}
            entry = self._state["tasks"].get(task)
            if entry is None or (entry["done"] and entry["record"] != record.get("started")):
                entry = {"run": None, "sent": 0, "done": False, "record": None}
                self._state["tasks"][task] = entry
            if not entry["done"]:
                self._send(task, record, entry, parent)
                write_json(self._folder / STATE, self._state)
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
            run = self._client.create_run(
                self._experiment(),
                run_name=launch.get("name") or self._folder.name,
                tags={
                    "posttrain.run": str(self._folder),
                    **{f"posttrain.{k}": str(v) for k, v in launch.items() if k != "started"},
                },
            )
            self._state["parent"] = run.info.run_id
            write_json(self._folder / STATE, self._state)
        return str(self._state["parent"])

    def _experiment(self) -> str:
        found = self._client.get_experiment_by_name(EXPERIMENT)
        if found:
            return str(found.experiment_id)
        # Files go beside a local database; a server knows its own place for them.
        database = Path(self._uri.removeprefix("sqlite:///")).absolute()
        beside = (database.parent / "artifacts").as_uri() if "sqlite:" in self._uri else None
        return str(self._client.create_experiment(EXPERIMENT, artifact_location=beside))

    def _send(
        self, task: str, record: Mapping[str, Any], entry: dict[str, Any], parent: str
    ) -> None:
        from mlflow.entities import Metric, Param, RunTag

        if entry["run"] is None:
            tags = {"mlflow.parentRunId": parent, "task": task}
            experiment = self._client.get_run(parent).info.experiment_id
            entry["run"] = self._client.create_run(experiment, run_name=task, tags=tags).info.run_id
        points = sorted(read_curves(self._folder / "stages" / task / CURVES), key=lambda p: p.time)
        metrics = [
            Metric(legal(p.name), p.value, int(p.time * 1000), p.step)
            for p in points[entry["sent"] :]
        ]
        for start in range(0, len(metrics), BATCH):
            self._client.log_batch(entry["run"], metrics=metrics[start : start + BATCH])
            entry["sent"] += len(metrics[start : start + BATCH])
        if not record:
            return
        final = [
            Metric(legal(name), value, int(record["ended"] * 1000), 0)
            for name, value in flat({"report": record["report"], "seconds": record["seconds"]})
            if isinstance(value, int | float)
        ]
        params = [Param(legal(k), str(v)[:6000]) for k, v in flat(record["config"])]
        tags_now = [RunTag(k, str(v)) for k, v in tags_of(record).items()]
        for start in range(0, len(final), BATCH):
            self._client.log_batch(entry["run"], metrics=final[start : start + BATCH])
        for start in range(0, len(params), 100):
            self._client.log_batch(entry["run"], params=params[start : start + 100])
        self._client.log_batch(entry["run"], tags=tags_now)
        self._log_inputs(entry["run"], record)
        self._client.set_terminated(entry["run"], "FINISHED")
        entry |= {"done": True, "record": record["started"]}

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


def ship(run_folder: Path, uri: str, *, parent: str | None = None, close: bool = True) -> str:
    """Send a run folder once; return what to tell the user. Never raises for a server's fault."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        from mlflow.exceptions import MlflowException

        shipper = Shipper(run_folder, uri, parent)
        try:
            sent = shipper.sync()
            if close:
                page = (run_folder / "report.html", run_folder / "summary.json")
                shipper.close(artifacts=page)
        except MlflowException as error:
            return _kept(run_folder, uri, error)
    except (OSError, SQLAlchemyError) as error:
        return _kept(run_folder, uri, error)
    return f"tracking: {sent} tasks in {uri}"


def _kept(run_folder: Path, uri: str, error: Exception) -> str:
    cause = str(error).split("\n")[0][:160]
    return (
        f"tracking: {uri} cannot be reached or refuses ({cause}); nothing is lost: the metrics"
        f" are in {run_folder}, `posttrain track {run_folder}` sends them later"
    )


@contextmanager
def live(run_folder: Path, uri: str, *, parent: str | None = None) -> Iterator[None]:
    """Send a run folder in the background while the body runs, and once more at its end."""
    done = threading.Event()

    def send() -> None:
        message = ship(run_folder, uri, parent=parent, close=False)
        while not done.wait(SEND_EVERY_SECONDS) and "cannot be reached" not in message:
            message = ship(run_folder, uri, parent=parent, close=False)

    thread = threading.Thread(target=send, name="tracking", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
