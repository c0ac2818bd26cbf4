"""What must hold for every pod that we produce, and for every set of objects that we apply.

A rule is a function: it yields what is wrong. The Pod Security Standards' profile `restricted`
comes first, completely; then what this project asks beyond it.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Object = dict[str, Any]


class Pod(NamedTuple):
    """A pod as it would be created: the spec merged from all that sets a part of it."""

    where: str
    maker: str
    namespace: str
    labels: dict[str, str]
    spec: Object


def containers(pod: Pod) -> Iterator[Object]:
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        yield from pod.spec.get(kind) or []


def of_container(container: Object, key: str) -> Any:
    return (container.get("securityContext") or {}).get(key)


def either(pod: Pod, container: Object, key: str) -> Any:
    """A setting of the container, or else of the pod."""
    own = of_container(container, key)
    return (pod.spec.get("securityContext") or {}).get(key) if own is None else own


def contexts(pod: Pod) -> Iterator[Object]:
    """The security contexts of the pod and its containers."""
    yield pod.spec.get("securityContext") or {}
    for container in containers(pod):
        yield container.get("securityContext") or {}


def handlers(container: Object) -> Iterator[Object]:
    """What the kubelet calls: probes and hooks."""
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        yield container.get(probe) or {}
    for hook in ("postStart", "preStop"):
        yield (container.get("lifecycle") or {}).get(hook) or {}


def host_process(pod: Pod) -> Iterator[str]:
    for context in contexts(pod):
        if (context.get("windowsOptions") or {}).get("hostProcess"):
            yield "hostProcess"


def host_namespaces(pod: Pod) -> Iterator[str]:
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.spec.get(key):
            yield key


def privileged(pod: Pod) -> Iterator[str]:
    for container in containers(pod):
        if of_container(container, "privileged"):
            yield container["name"]


def capabilities(pod: Pod) -> Iterator[str]:
    for container in containers(pod):
        given = of_container(container, "capabilities") or {}
        if "ALL" not in (given.get("drop") or []):
            yield f"{container['name']} does not drop ALL"
        if added := set(given.get("add") or []) - {"NET_BIND_SERVICE"}:
            yield f"{container['name']} adds {sorted(added)}"


VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}


def volume_types(pod: Pod) -> Iterator[str]:
    for volume in pod.spec.get("volumes") or []:
        if kinds := volume.keys() - VOLUMES - {"name"}:
            yield f"{volume['name']} is {sorted(kinds)}"


def host_ports(pod: Pod) -> Iterator[str]:
    for container in containers(pod):
        for port in container.get("ports") or []:
            if port.get("hostPort"):
                yield f"{container['name']}: {port['hostPort']}"


def host_probes(pod: Pod) -> Iterator[str]:
    for container in containers(pod):
        for handler in handlers(container):
            for kind in ("httpGet", "tcpSocket"):
                if (handler.get(kind) or {}).get("host"):
                    yield f"{container['name']} asks {handler[kind]['host']}"


def apparmor(pod: Pod) -> Iterator[str]:
    for context in contexts(pod):
        kind = (context.get("appArmorProfile") or {}).get("type")
        if kind not in (None, "RuntimeDefault", "Localhost"):
            yield str(kind)


def selinux(pod: Pod) -> Iterator[str]:
    allowed = {None, "", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
    for context in contexts(pod):
        options = context.get("seLinuxOptions") or {}
        if options.get("type") not in allowed or options.get("user") or options.get("role"):
            yield str(options)


def proc_mount(pod: Pod) -> Iterator[str]:
    for container in containers(pod):
        if of_container(container, "procMount") not in (None, "Default"):
            yield container["name"]


SYSCTLS = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
}


def sysctls(pod: Pod) -> Iterator[str]:
    for given in (pod.spec.get("securityContext") or {}).get("sysctls") or []:
        if given["name"] not in SYSCTLS:
            yield given["name"]


def seccomp(pod: Pod) -> Iterator[str]:
    for container in containers(pod):
        kind = (either(pod, container, "seccompProfile") or {}).get("type")
        if kind not in ("RuntimeDefault", "Localhost"):
            yield f"{container['name']}: {kind}"
    for context in contexts(pod):
        if (context.get("seccompProfile") or {}).get("type") == "Unconfined":
            yield "Unconfined"


def privilege_escalation(pod: Pod) -> Iterator[str]:
    for container in containers(pod):
        if of_container(container, "allowPrivilegeEscalation") is not False:
            yield container["name"]


def non_root(pod: Pod) -> Iterator[str]:
    for container in containers(pod):
        if either(pod, container, "runAsNonRoot") is not True:
            yield container["name"]
    if any(context.get("runAsNonRoot") is False for context in contexts(pod)):
        yield "runAsNonRoot: false"


def root_user(pod: Pod) -> Iterator[str]:
    if any(context.get("runAsUser") == 0 for context in contexts(pod)):
        yield "runAsUser: 0"


RESTRICTED: dict[str, Callable[[Pod], Iterator[str]]] = {
    "host_process": host_process,
    "host_namespaces": host_namespaces,
    "privileged": privileged,
    "capabilities": capabilities,
    "volume_types": volume_types,
    "host_ports": host_ports,
    "host_probes": host_probes,
    "apparmor": apparmor,
    "selinux": selinux,
    "proc_mount": proc_mount,
    "sysctls": sysctls,
    "seccomp": seccomp,
    "privilege_escalation": privilege_escalation,
    "non_root": non_root,
    "root_user": root_user,
}
"""The profile `restricted` of the Pod Security Standards, control by control."""


def read_only_root(pod: Pod) -> Iterator[str]:
    for container in containers(pod):
        if of_container(container, "readOnlyRootFilesystem") is not True:
            yield container["name"]


def memory_limit(pod: Pod) -> Iterator[str]:
    for container in containers(pod):
        if not ((container.get("resources") or {}).get("limits") or {}).get("memory"):
            yield container["name"]


TOKEN_HOLDERS = {"posttrain-workflow"}
"""Service accounts that a role is bound to; Kubeflow has its own in a profile's namespace."""


def token(pod: Pod) -> Iterator[str]:
    account = pod.spec.get("serviceAccountName", "default")
    if pod.spec.get("automountServiceAccountToken", True) and account not in TOKEN_HOLDERS:
        yield f"{account}'s token is mounted"


def image(pod: Pod) -> Iterator[str]:
    """By digest, or a local tag that an overlay replaces by a registry's name and digest."""
    for container in containers(pod):
        name = container["image"]
        local = re.fullmatch(r"localhost/[a-z0-9/-]+:(?!latest$)[\w.-]+", name)
        if not local and not re.search(r"@sha256:[0-9a-f]{64}$", name):
            yield name


SECRET_NAME = re.compile(r"PASSWORD|PASSWD|SECRET|TOKEN|CREDENTIAL|(ACCESS|API|PRIVATE)_?KEY", re.I)
SECRET_VALUE = re.compile(r"://[^/\s:@]+:[^/\s@]+@|-----BEGIN|\bAKIA[0-9A-Z]{16}\b|\bhf_\w{20}")


def secret_values(pod: Pod) -> Iterator[str]:
    for container in containers(pod):
        for given in container.get("env") or []:
            value = given.get("value") or ""
            if value and (SECRET_NAME.search(given["name"]) or SECRET_VALUE.search(value)):
                yield f"{container['name']}: {given['name']}"
        words = [*(container.get("command") or []), *(container.get("args") or [])]
        if any(SECRET_VALUE.search(word) for word in words):
            yield f"{container['name']}: its command line"


OURS: dict[str, Callable[[Pod], Iterator[str]]] = {
    "read_only_root": read_only_root,
    "memory_limit": memory_limit,
    "token": token,
    "image": image,
    "secret_values": secret_values,
}

POD_RULES = RESTRICTED | OURS
