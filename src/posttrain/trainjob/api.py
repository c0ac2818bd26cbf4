"""The Kubernetes API, as a pod of ours uses it: a few REST calls, and refusals that say what to do.

Credentials are the pod's own, or those of the kubeconfig that `KUBECONFIG` names.
"""

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from posttrain.errors import ConfigError, Fault, TransientError

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
TIMEOUT_SECONDS = 30
JSON = {"Accept": "application/json", "Content-Type": "application/json"}


class AwayError(TransientError):
    """The API is not there, or has no time; what it keeps goes on meanwhile."""


class Api:
    """One namespace of one cluster; `api` is an `ApiClient` of the package `kubernetes`."""

    def __init__(self, api: Any, namespace: str) -> None:
        self._api = api
        self.namespace = namespace

    @classmethod
    def here(cls, mend: str) -> "Api":
        """The one that this process runs in; raise `ConfigError` with `mend` if it runs in none."""
        from kubernetes import client, config

        configuration = client.Configuration()
        try:
            if NAMESPACE_FILE.is_file():
                config.load_incluster_config(configuration)
                namespace = NAMESPACE_FILE.read_text(encoding="utf-8").strip()
            else:
                file = os.environ.get("KUBECONFIG")
                config.load_kube_config(file, client_configuration=configuration)
                context = config.list_kube_config_contexts(file)[1]["context"]
                namespace = context.get("namespace", "default")
        except config.ConfigException as error:
            why = str(error).split("\n")[0]
            raise ConfigError(Fault("no Kubernetes cluster", "--machines", why, mend)) from None
        return cls(client.ApiClient(configuration), namespace)

    def own_pod(self, mend: str) -> dict[str, Any]:
        """The pod that this process runs in; raise `ConfigError` with `mend` if it is none."""
        found = self.read("pods", socket.gethostname())
        if found is None:
            where = f"namespace {self.namespace}"
            why = f"the cluster has no pod `{socket.gethostname()}`, so this process is in none"
            raise ConfigError(Fault("not in a pod", where, why, mend))
        return found

    def read(self, kind: str, name: str) -> dict[str, Any] | None:
        """An object, or None if there is none of that name."""
        found: dict[str, Any] | None = self.call("get", kind, name)
        return found

    def listed(self, kind: str, labels: str) -> list[dict[str, Any]]:
        """The objects that have the labels, by name."""
        found = self.call("list", kind, query={"labelSelector": labels})["items"]
        return sorted(found, key=lambda each: str(each["metadata"]["name"]))

    def log(self, pod: str, container: str, since: str) -> str:
        """The log of a container from a time on, each line with its time before it; nothing as long
        as the container has not begun."""
        query = {"container": container, "timestamps": "true", **since_time(since)}
        text = self.call("get", "pods/log", pod, query=query, answer="str")
        return str(text or "")

    def call(
        self,
        verb: str,
        kind: str,
        name: str = "",
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        answer: str = "object",
    ) -> Any:
        """Do something with objects; None where the API knows no such object.

        A refusal is a `ConfigError` that names verb and kind, a server that is away is `AwayError`.
        """
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        methods = {"create": "POST", "delete": "DELETE"}
        where = self._path(kind, name)
        try:
            return self._api.call_api(
                where,
                methods.get(verb, "GET"),
                query_params=list((query or {}).items()),
                header_params=dict(JSON),
                body=body,
                response_type=answer,
                auth_settings=["BearerToken"],
                _return_http_data_only=True,
                _request_timeout=TIMEOUT_SECONDS,
            )
        except ApiException as error:
            # A log is refused with 400 until its container has begun.
            if error.status == 404 or (error.status == 400 and kind == "pods/log"):
                return None
            raise refusal(verb, kind, where, error) from None
        except HTTPError as error:
            mend = "run it again; if it stays away, look at the network policy of the graph's pods"
            why = str(error).split("\n")[0]
            raise AwayError(Fault("no answer from the cluster", where, why, mend)) from None

    def _path(self, kind: str, name: str) -> str:
        kind, _, part = kind.partition("/")
        group = "/api/v1" if kind == "pods" else "/apis/trainer.kubeflow.org/v1alpha1"
        return "/".join(
            each for each in (group, "namespaces", self.namespace, kind, name, part) if each
        )


def since_time(since: str) -> dict[str, str]:
    """The query for a log from a time on; from its beginning if there is none yet."""
    return {"sinceTime": since} if since else {}


def refusal(verb: str, kind: str, where: str, error: Any) -> ConfigError | AwayError:
    """What an HTTP status other than 404 means to whoever reads it."""
    why = str(error.body or error.reason)[:500]
    if error.status in (401, 403):
        what = f"not allowed to {verb} {kind}"
        mend = f"let the role of the pod's service account {verb} {kind} (k8s/ binds such a role)"
        return ConfigError(Fault(what, where, why, mend))
    what = f"the cluster answered {error.status} to {verb} {kind}"
    if error.status >= 500 or error.status in (409, 429):
        return AwayError(Fault(what, where, why, "run it again"))
    return ConfigError(Fault(what, where, why, "mend what it complains of"))
