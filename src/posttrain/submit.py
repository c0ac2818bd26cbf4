"""`posttrain submit`: start a graph, or put it on a schedule, on Kubeflow Pipelines or Argo.

A token is given by reference, as the name of an environment variable; it is sent over TLS only,
and certificates are verified (a private CA: `SSL_CERT_FILE`).
"""

import contextlib
import importlib
import io
import json
import os
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from posttrain.cli import Parser
from posttrain.errors import ConfigError, Fault, PosttrainError, TransientError, accepted
from posttrain.launch import graph_named

TARGETS = {
    "kubeflow": ("http://localhost:8888", "KFP_TOKEN"),
    "argo": ("https://localhost:2746", "ARGO_TOKEN"),
}
"""Where a port-forward puts each API server, and the variable that holds its token."""

KINDS: dict[str, type] = {"String": str, "Integer": int, "Dict": dict, "List": list}
EXPERIMENT = "posttrain"
TIMEOUT_SECONDS = 30
LOCAL = ("localhost", "127.0.0.1", "::1")


def main(argv: Sequence[str]) -> int:
    """Submit and print where to look."""
    parser = Parser(prog="posttrain submit", description=__doc__)
    parser.add_argument("--to", choices=sorted(TARGETS), default="kubeflow")
    parser.add_argument("--host", help="URL of the API server [a local port-forward]")
    parser.add_argument("--namespace", help="[argo: posttrain; kubeflow: the user's own]")
    parser.add_argument("--pipeline", default="posttraining", help="posttraining or nightly_eval")
    parser.add_argument("--schedule", metavar="CRON", help="five cron fields: run again and again")
    parser.add_argument("--param", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--token-env", metavar="NAME", help="variable that holds the token")
    given = parser.parse_args(list(argv))
    host, token_env = TARGETS[given.to]
    host = (given.host or host).rstrip("/")
    token = os.environ.get(given.token_env or token_env, "")
    graph = graph_named(given.pipeline)
    parameters = typed_parameters(graph, given.param)
    if given.schedule and len(given.schedule.split()) != 5:
        mend = "minute hour day month weekday, such as '30 2 * * *'"
        why = "five fields are wanted"
        raise ConfigError(Fault(f"bad schedule `{given.schedule}`", "--schedule", why, mend))
    refuse_open_token(host, token)
    submit = to_argo if given.to == "argo" else to_kubeflow
    print(submit(graph, host, token, given.namespace, given.schedule, parameters))
    return 0


def typed_parameters(graph: Any, given: Sequence[str]) -> dict[str, Any]:
    """Parse `NAME=VALUE` by the pipeline's own declarations; raise all faults at once."""
    declared = graph.component_spec.inputs
    parameters: dict[str, Any] = {}
    faults = []
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name not in declared:
            mend = accepted(name, declared)
            faults.append(Fault(f"unknown parameter `{name}`", "--param", "NAME=VALUE", mend))
            continue
        kind = declared[name].type
        try:
            parameters[name] = value if kind == "String" else json.loads(value)
            fits = isinstance(parameters[name], KINDS[kind])
        except json.JSONDecodeError:
            fits = False
        if not fits:
            mend = f"give a value of type {kind}, in JSON"
            faults.append(Fault(f"bad value for `{name}`", "--param", f"{value!r}", mend))
    if faults:
        raise ConfigError(*faults)
    return parameters


def refuse_open_token(host: str, token: str) -> None:
    """A token must not travel in the clear, except to this very machine."""
    url = urllib.parse.urlsplit(host)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ConfigError(Fault(f"bad host `{host}`", "--host", "no URL", "give https://HOST"))
    if token and url.scheme == "http" and url.hostname not in LOCAL:
        raise ConfigError(
            Fault("token without TLS", host, "anyone on the way could read it", "use https://")
        )


def to_kubeflow(
    graph: Any,
    host: str,
    token: str,
    namespace: str | None,
    schedule: str | None,
    parameters: Mapping[str, Any],
) -> str:
    """Start a run, or create a recurring run, with the pipeline as it stands here."""
    call("GET", f"{host}/apis/v2beta1/healthz", token)
    import kfp
    from kfp.compiler import Compiler
    from kfp_server_api import ApiException

    with (
        tempfile.TemporaryDirectory() as folder,
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        warnings.simplefilter("ignore", FutureWarning)
        package = str(Path(folder) / f"{graph.name}.yaml")
        Compiler().compile(graph, package)
        try:
            client = kfp.Client(
                host=host,
                namespace=namespace or "kubeflow",
                existing_token=token or None,
                ssl_ca_cert=os.environ.get("SSL_CERT_FILE"),
            )
            experiment = client.create_experiment(EXPERIMENT, namespace=namespace).experiment_id
            if not schedule:
                run = client.run_pipeline(experiment, graph.name, package, params=dict(parameters))
                return f"run {run.run_id}: {host}/#/runs/details/{run.run_id}"
            recurring = client.create_recurring_run(
                experiment,
                graph.name,
                cron_expression=f"0 {schedule}",
                max_concurrency=1,
                no_catchup=True,
                params=dict(parameters),
                pipeline_package_path=package,
            )
        except ApiException as error:
            raise refusal(error.status, host, str(error.body or error.reason)) from None
    found = recurring.recurring_run_id
    return f"recurring run {found}: {host}/#/recurringrun/details/{found}"


def to_argo(
    graph: Any,
    host: str,
    token: str,
    namespace: str | None,
    schedule: str | None,
    parameters: Mapping[str, Any],
) -> str:
    """Create a Workflow, or create or replace a CronWorkflow, through the Argo server."""
    argo = importlib.import_module("pipelines.argo")
    namespace = namespace or argo.NAMESPACE
    if not schedule:
        manifest = yaml.safe_load(argo.workflow(graph, **parameters).to_yaml())
        manifest["metadata"]["namespace"] = namespace
        url = f"{host}/api/v1/workflows/{namespace}"
        name = call("POST", url, token, {"workflow": manifest})["metadata"]["name"]
        return f"workflow {name}: {host}/workflows/{namespace}/{name}"
    cron = argo.cron_workflow(graph, schedule, "Etc/UTC", **parameters)
    manifest = yaml.safe_load(cron.to_yaml())
    manifest["metadata"]["namespace"] = namespace
    name = manifest["metadata"]["name"]
    url = f"{host}/api/v1/cron-workflows/{namespace}"
    there = call("GET", f"{url}/{name}", token, absent_is_fine=True)
    if there:
        manifest["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"]
        call("PUT", f"{url}/{name}", token, {"cronWorkflow": manifest})
    else:
        call("POST", url, token, {"cronWorkflow": manifest})
    return f"cron workflow {name} ({schedule} UTC): {host}/cron-workflows/{namespace}/{name}"


def call(
    method: str,
    url: str,
    token: str,
    body: Mapping[str, Any] | None = None,
    *,
    absent_is_fine: bool = False,
) -> dict[str, Any]:
    """One JSON request; refusals are `ConfigError`s, a server that is away a `TransientError`."""
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token.removeprefix('Bearer ')}"
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data=data, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            found: dict[str, Any] = json.loads(answer.read() or b"{}")
            return found
    except urllib.error.HTTPError as error:
        if error.code == 404 and absent_is_fine:
            return {}
        said = error.read().decode(errors="replace")
        raise refusal(error.code, url, said or str(error.reason)) from None
    except json.JSONDecodeError:
        mend = "give the URL of the API server"
        raise ConfigError(Fault("no API server", url, "it did not answer JSON", mend)) from None
    except OSError as error:
        cause = str(getattr(error, "reason", error))
        raise TransientError(
            Fault("cannot reach the server", url, cause, "check --host, or the port-forward")
        ) from None


def refusal(code: int, url: str, said: str) -> PosttrainError:
    """What an HTTP status means to the user: their mistake, or the server's bad moment."""
    said = said[:300]
    if code in (401, 403):
        mend = "set the variable that --token-env names to a token of a user who may do this"
        return ConfigError(Fault(f"refused ({code})", url, said, mend))
    if code >= 500 or code == 429:
        return TransientError(Fault(f"the server answered {code}", url, said, "submit again later"))
    return ConfigError(Fault(f"the server answered {code}", url, said, "mend what it complains of"))
