"""`posttrain submit`: start a graph on Kubeflow Pipelines or Argo Workflows.

A token is given by reference, as the name of an environment variable; it is sent over TLS only,
and certificates are verified (a private CA: `SSL_CERT_FILE`).
"""

import json
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from posttrain.check import GRAPHS
from posttrain.cluster import Cluster, Wish, add_cluster, cluster_of
from posttrain.command_line import Parser
from posttrain.errors import ConfigError, Fault, TransientError, accepted
from posttrain.launch import graph_named
from posttrain.rehearsal import SUFFIX, rehearsal_overrides

KINDS: dict[str, tuple[type, ...]] = {
    "String": (str,),
    "Integer": (int,),
    "Float": (float, int),
    "Boolean": (bool,),
    "Dict": (dict,),
    "List": (list,),
}


def main(argv: Sequence[str]) -> int:
    """Submit and print where to look."""
    parser = Parser(prog="posttrain submit", description=__doc__)
    add_cluster(parser, default="kubeflow")
    add_graph(parser)
    parser.add_argument("--name", help="of the run; again with it makes no second [PIPELINE-...]")
    parser.add_argument("--rehearse", action="store_true", help="first run it with tiny settings")
    given = parser.parse_args(list(argv))
    graph = graph_named(given.pipeline)
    parameters = typed_parameters(graph, given.param)
    name = checked_name(given.name or f"{graph.name}-{secrets.token_hex(4)}")
    cluster = cluster_of(given)
    if given.rehearse and (code := rehearse(cluster, graph, name, parameters)):
        return code
    started = submitted(cluster, Wish(graph, name, parameters))
    print(f"run {started}: {cluster.where(started)}")
    print(f"posttrain status {started} --to {given.to}", file=sys.stderr)
    return 0


def add_graph(parser: Parser) -> None:
    """The options that say what shall run."""
    parser.add_argument("--pipeline", default="posttraining", help="a graph of this repository")
    parser.add_argument("--param", action="append", default=[], metavar="NAME=VALUE")


def submitted(cluster: Cluster, wish: Wish) -> str:
    """Submit; when nobody answered, tell by which name to ask again without a second run."""
    try:
        return cluster.submit(wish)
    except TransientError as error:
        mend = f"submit again with `--name {wish.name}`: if this one arrived, it makes no second"
        raise TransientError(*(Fault(f.what, f.where, f.why, mend) for f in error.faults)) from None


def rehearse(cluster: Cluster, graph: Any, name: str, parameters: Mapping[str, Any]) -> int:
    """Run the graph with tiny settings and follow it; 0 if it passed."""
    from posttrain.verbs.status import exit_code, watched

    recipe = parameters.get("recipe", graph.component_spec.inputs["recipe"].default)
    tasks = GRAPHS[graph.name.replace("-", "_")]
    tiny = rehearsal_overrides(recipe, parameters.get("overrides", ""), tasks)
    wish = Wish(graph, f"{name}{SUFFIX}", {**parameters, "overrides": tiny})
    started = submitted(cluster, wish)
    print(f"rehearsal {started}: {cluster.where(started)}", file=sys.stderr)
    run = watched(lambda: cluster.run(started), sys.stderr)
    code = exit_code(run)
    word = "passed" if code == 0 else "did not pass: the run proper was not submitted"
    print(f"rehearsal {started} {word}", file=sys.stderr)
    return code


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


def checked_name(name: str) -> str:
    """A name that Kubernetes takes; ConfigError for another."""
    if re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?", name):
        return name
    why = "Kubernetes takes lower-case letters, digits and hyphens, 52 at most"
    raise ConfigError(Fault(f"bad name `{name}`", "--name", why, "choose another"))
