"""Following a TrainJob from its start to its end: what it says, and what its end means."""

import json
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from posttrain import heartbeat, interruption
from posttrain.errors import ConfigError, DataError, Fault, PosttrainError, TransientError
from posttrain.trainjob.api import Api, AwayError

NODE = "node"
"""The job of the runtime that trains, and its container: names that Kubeflow Trainer prescribes."""

HOME, CODE = "POSTTRAIN_TRAINJOB", "code.json"
"""The variable that names the folder of a TrainJob, and the file there with its exit code."""

PATIENCE_SECONDS = 300.0
"""So long the API may be away before the pod gives up; the TrainJob goes on meanwhile."""

ERRORS = {error.exit_code: error for error in (ConfigError, DataError, TransientError)}


class Following:
    """A TrainJob from its start to its end, told on standard error."""

    def __init__(
        self, api: Api, job: Mapping[str, Any], home: Path, task: str, poll_seconds: float
    ) -> None:
        self._api, self._job, self._home = api, job, home
        self._name, self._task = str(job["metadata"]["name"]), task
        self._poll = poll_seconds
        self._said: dict[str, str] = {}
        self._since, self._shown = "", set[str]()
        self._disrupted, self._starved = "", ""

    def until_done(self) -> None:
        """Start it, or go on with one that is at work, and return when it has the result.

        Raises what the stage was asked to stop with, after its end was ordered; a `TransientError`
        if a machine was taken away; else the error whose exit code the stage had.
        """
        away = time.monotonic()
        started = False
        while True:
            try:
                started = started or self._started()
                job = self._look() if started else None
                away = time.monotonic()
            except AwayError:
                if time.monotonic() - away > PATIENCE_SECONDS:
                    raise
                job = None
            if job and self._concluded(job):
                return
            heartbeat.beat()
            self._pause()

    def _started(self) -> bool:
        """Whether one is at work that is not an earlier one on its way out."""
        found = self._api.read("trainjobs", self._name)
        if found and not conditions(found).keys() & {"Complete", "Failed"}:
            if "deletionTimestamp" not in found["metadata"]:
                self._say("job", f"following {self._name}, which is at work already")
                return True
        elif found and "deletionTimestamp" not in found["metadata"]:
            self._api.call("delete", "trainjobs", self._name)
        if found:
            self._say("job", f"{self._name} of an earlier attempt is being deleted")
            return False
        (self._home / CODE).unlink(missing_ok=True)
        self._api.call("create", "trainjobs", body=self._job)
        trainer = self._job["spec"]["trainer"]
        size = f"{trainer['numNodes']} machines, {trainer['numProcPerNode']} processes on each"
        self._say("job", f"started {self._name}: {size}")
        return True

    def _look(self) -> dict[str, Any]:
        """Tell what is new of its pods and in the log of the first; return the TrainJob."""
        job = self._api.read("trainjobs", self._name)
        if job is None:
            why = "somebody deleted it"
            raise TransientError(Fault("TrainJob gone", self._name, why, "run it again"))
        for kind, condition in conditions(job).items():
            self._say(kind, f"{kind}: {condition.get('message') or condition.get('reason')}")
        pods = self._api.listed("pods", f"jobset.sigs.k8s.io/jobset-name={self._name}")
        for pod in pods:
            self._tell(pod)
        first = "batch.kubernetes.io/job-completion-index"
        for pod in pods:
            if pod["metadata"].get("labels", {}).get(first) == "0":
                self._tell_log(str(pod["metadata"]["name"]))
        return job

    def _tell(self, pod: Mapping[str, Any]) -> None:
        """Tell of a pod's state, and remember if it was taken away or ran out of memory."""
        name, status = pod["metadata"]["name"], pod.get("status", {})
        state = str(status.get("phase", "Pending"))
        for condition in status.get("conditions", []):
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                state += f": {condition.get('message', '')}"
            if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
                self._disrupted = f"{name}: {condition.get('message') or condition.get('reason')}"
        if status.get("reason") in ("Evicted", "Preempting", "NodeLost", "Shutdown", "Terminated"):
            self._disrupted = f"{name}: {status.get('message') or status['reason']}"
        for container in status.get("containerStatuses", []):
            for how, detail in container.get("state", {}).items():
                state += f", {container['name']} {how} {detail.get('reason', '')}".rstrip()
                if detail.get("reason") == "OOMKilled":
                    self._starved = str(name)
        self._say(str(name), f"{name}: {state}")

    def _tell_log(self, pod: str) -> None:
        """Pass on the lines of a log that were not there at the last look."""
        for line in self._api.log(pod, NODE, self._since).splitlines():
            moment, _, text = line.partition(" ")
            if moment > self._since:
                self._since, self._shown = moment, set()
            if moment == self._since and line not in self._shown:
                self._shown.add(line)
                print(text, file=sys.stderr, flush=True)

    def _concluded(self, job: Mapping[str, Any]) -> bool:
        """Whether it has the result; raise why it has none if it ended without."""
        found = conditions(job)
        if "Complete" in found:
            return True
        if "Failed" not in found:
            return False
        if self._disrupted:
            mend = "run it again; it goes on from its last checkpoint"
            raise TransientError(
                Fault("a machine was taken away", self._name, self._disrupted, mend)
            )
        if self._starved:
            mend = "give it more memory, or smaller `micro_batch_tokens`"
            raise ConfigError(Fault("out of memory", self._name, self._starved, mend))
        why = str(found["Failed"].get("message") or found["Failed"].get("reason"))
        mend = "see its log above"
        raise ERRORS.get(self._code(), PosttrainError)(
            Fault("the TrainJob failed", self._name, why, mend)
        )

    def _code(self) -> int:
        """The exit code of process 0; 1 if it did not get to tell."""
        try:
            return int(json.loads((self._home / CODE).read_text(encoding="utf-8"))["code"])
        except (OSError, ValueError, KeyError):
            return 1

    def _pause(self) -> None:
        """Wait until it is time to look again; end it all if the stage is asked to stop."""
        until = time.monotonic() + self._poll
        while time.monotonic() < until:
            if error := interruption.asked():
                self._say("job", f"ending {self._name}: it is given time for a checkpoint")
                with suppress(AwayError):
                    self._api.call("delete", "trainjobs", self._name)
                raise error
            time.sleep(min(0.2, self._poll))

    def _say(self, what: str, text: str) -> None:
        if self._said.get(what) != text:
            self._said[what] = text
            print(f"{self._task}: {text}", file=sys.stderr, flush=True)


def conditions(job: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What is true of a TrainJob: Suspended, Complete, Failed."""
    found = job.get("status", {}).get("conditions", [])
    return {str(each["type"]): each for each in found if each["status"] == "True"}
