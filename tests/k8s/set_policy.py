"""What must hold for a set of objects that are applied together, and the pods that they make."""

import re
from collections.abc import Callable, Iterator, Sequence

from tests.k8s.policy import SECRET_VALUE, Object, Pod

LEVELS = ("enforce", "audit", "warn")


def of_kind(objects: Sequence[Object], *kinds: str) -> list[Object]:
    return [thing for thing in objects if thing["kind"] in kinds]


def name(thing: Object) -> str:
    return f"{thing['kind']} {thing['metadata'].get('namespace', '')}/{thing['metadata']['name']}"


def selects(selector: Object, labels: dict[str, str]) -> bool:
    """Whether a label selector holds for these labels."""
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for given in selector.get("matchExpressions", []):
        value, listed = labels.get(given["key"]), given.get("values", [])
        holds = {
            "Exists": value is not None,
            "DoesNotExist": value is None,
            "In": value in listed,
            "NotIn": value not in listed,
        }
        if not holds[given["operator"]]:
            return False
    return True


def restricted_namespaces(objects: Sequence[Object], pods: Sequence[Pod]) -> Iterator[str]:
    for thing in of_kind(objects, "Namespace"):
        labels = thing["metadata"].get("labels", {})
        for level in LEVELS:
            if labels.get(f"pod-security.kubernetes.io/{level}") != "restricted":
                yield f"{name(thing)} does not {level}"


def known_namespaces(objects: Sequence[Object], pods: Sequence[Pod]) -> Iterator[str]:
    made = {thing["metadata"]["name"] for thing in of_kind(objects, "Namespace")}
    for thing in objects:
        if thing["metadata"].get("namespace") not in (None, *made):
            yield f"{name(thing)} is in a namespace that is not made"


def default_deny(objects: Sequence[Object], pods: Sequence[Pod]) -> Iterator[str]:
    closed = {
        policy["metadata"]["namespace"]
        for policy in of_kind(objects, "NetworkPolicy")
        if policy["spec"]["podSelector"] == {}
        and set(policy["spec"]["policyTypes"]) == {"Ingress", "Egress"}
        and not policy["spec"].get("ingress")
        and not policy["spec"].get("egress")
    }
    for thing in of_kind(objects, "Namespace"):
        if thing["metadata"]["name"] not in closed:
            yield f"{name(thing)} is open"


def selected_pods(objects: Sequence[Object], pods: Sequence[Pod]) -> Iterator[str]:
    """Every pod is selected both ways by a policy of its own namespace."""
    for pod in pods:
        ways = {
            way
            for policy in of_kind(objects, "NetworkPolicy")
            if policy["metadata"]["namespace"] == pod.namespace
            and selects(policy["spec"]["podSelector"], pod.labels)
            for way in policy["spec"]["policyTypes"]
        }
        if ways != {"Ingress", "Egress"}:
            yield f"{pod.where}: {sorted(ways)}"


def narrow_peers(objects: Sequence[Object], pods: Sequence[Pod]) -> Iterator[str]:
    """Nobody comes in from everywhere; whoever goes out to everywhere goes by named ports, and
    not to the addresses where clouds hand out a node's rights."""
    for policy in of_kind(objects, "NetworkPolicy"):
        for rule in policy["spec"].get("ingress", []):
            peers = rule.get("from", [])
            if not peers or any(p.get("ipBlock") or {} in p.values() for p in peers):
                yield f"{name(policy)} lets everybody in"
        for rule in policy["spec"].get("egress", []):
            wide = [p["ipBlock"] for p in rule.get("to", []) if "ipBlock" in p]
            if not rule.get("to") or any({} in p.values() for p in rule["to"]):
                yield f"{name(policy)} lets out to everywhere"
            if wide and not rule.get("ports"):
                yield f"{name(policy)} lets out by every port"
            if any("169.254.0.0/16" not in block.get("except", []) for block in wide):
                yield f"{name(policy)} lets out to the metadata service"


def closed_sandbox(objects: Sequence[Object], pods: Sequence[Pod]) -> Iterator[str]:
    """Whatever stands in the sandbox's namespace has no way out at all."""
    for policy in of_kind(objects, "NetworkPolicy"):
        if policy["metadata"]["namespace"].endswith("-sandbox") and policy["spec"].get("egress"):
            yield name(policy)


READ = {"get", "list", "watch"}
POWERS = {
    "secrets": set(),
    "pods/exec": set(),
    "pods/attach": set(),
    "pods/portforward": set(),
    "pods/ephemeralcontainers": set(),
    "serviceaccounts/token": set(),
    "roles": set(),
    "rolebindings": set(),
    "networkpolicies": READ,
    "pods": READ,
}
"""Resource -> the most that a role of ours may do with it."""


def narrow_roles(objects: Sequence[Object], pods: Sequence[Pod]) -> Iterator[str]:
    for role in of_kind(objects, "Role", "ClusterRole", "ClusterRoleBinding"):
        if role["kind"] != "Role":
            yield f"{name(role)} reaches over namespaces"
        for rule in role.get("rules") or []:
            if "*" in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]:
                yield f"{name(role)} has a wildcard"
            if {"bind", "escalate", "impersonate"} & set(rule["verbs"]):
                yield f"{name(role)} can make itself greater"
            for resource in rule["resources"]:
                if not set(rule["verbs"]) <= POWERS.get(resource, set(rule["verbs"])):
                    yield f"{name(role)} may {rule['verbs']} {resource}"


def bound_subjects(objects: Sequence[Object], pods: Sequence[Pod]) -> Iterator[str]:
    roles = {(r["metadata"]["namespace"], r["metadata"]["name"]) for r in of_kind(objects, "Role")}
    for binding in of_kind(objects, "RoleBinding"):
        space = binding["metadata"]["namespace"]
        if (space, binding["roleRef"]["name"]) not in roles:
            yield f"{name(binding)} binds no role"
        for subject in binding["subjects"]:
            if subject["kind"] == "ServiceAccount" and subject.get("namespace") != space:
                yield f"{name(binding)} binds an account of another namespace"
            if subject["name"] in ("system:authenticated", "system:unauthenticated"):
                yield f"{name(binding)} binds everybody"


def no_secrets(objects: Sequence[Object], pods: Sequence[Pod]) -> Iterator[str]:
    for thing in of_kind(objects, "Secret"):
        if thing.get("data") or thing.get("stringData"):
            yield name(thing)
    for thing in of_kind(objects, "ConfigMap"):
        for key, text in (thing.get("data") or {}).items():
            if SECRET_VALUE.search(text) or re.search(r"(?im)^\s*\w*password\w*\s*[=:]\s*\S", text):
                yield f"{name(thing)}: {key}"


def inner_services(objects: Sequence[Object], pods: Sequence[Pod]) -> Iterator[str]:
    """Nothing is shown outside the cluster."""
    for thing in objects:
        kind = thing.get("spec", {}).get("type") if thing["kind"] == "Service" else thing["kind"]
        if kind in ("LoadBalancer", "NodePort", "ExternalName", "Ingress", "HTTPRoute", "Gateway"):
            yield name(thing)


SetRule = Callable[[Sequence[Object], Sequence[Pod]], Iterator[str]]
SET_RULES: dict[str, SetRule] = {
    "restricted_namespaces": restricted_namespaces,
    "known_namespaces": known_namespaces,
    "default_deny": default_deny,
    "selected_pods": selected_pods,
    "narrow_peers": narrow_peers,
    "closed_sandbox": closed_sandbox,
    "narrow_roles": narrow_roles,
    "bound_subjects": bound_subjects,
    "no_secrets": no_secrets,
    "inner_services": inner_services,
}
