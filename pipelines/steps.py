"""How a stage becomes a task of a graph: named, titled, retried, never cached, on its node pool.

Kubernetes settings have no effect in `kfp.local`; there the same graph runs as plain processes.
What a pod needs and no run chooses (deadline, memory, labels, volumes) stands here as constants.
"""

import copy
import importlib
from typing import Any, NamedTuple

from kfp import kubernetes
from kfp.dsl import PipelineTask
from kfp.dsl.pipeline_channel import PipelineChannel
from kfp.dsl.python_component import PythonComponent

from components.container import POOLS, pool_of
from posttrain.stages import TASKS

__all__ = ["POOLS", "Pool", "Steps", "component_of"]

CONFIG = "posttrain"
"""The ConfigMap of `k8s/`: its keys become environment variables of the same names."""

CONFIG_KEYS = (
    "POSTTRAIN_STORE",
    "POSTTRAIN_DATA",
    "POSTTRAIN_SANDBOX",
    "MLFLOW_TRACKING_URI",
    "MLFLOW_TRACKING_SERVER_CERT_PATH",
)
STORE_CLAIM, STORE_PATH = "posttrain-store", "/store"
CA_CONFIG, CA_PATH = "posttrain-ca", "/etc/posttrain"
USER = 1000

RETRIES, BACKOFF = 20, "30s"
"""Most retries of a task: that many times its machine may be taken away. KFP cannot tell failures
apart, so there `posttrain.attempts` ends what must not be retried."""

MLFLOW_LOGIN = {"username": "MLFLOW_TRACKING_USERNAME", "password": "MLFLOW_TRACKING_PASSWORD"}
SECRETS: dict[str, dict[str, dict[str, str]]] = {
    "gate": {"posttrain-webhook": {"url": "POSTTRAIN_WEBHOOK"}},
}
"""Stage -> Secrets of the cluster beside MLflow's, and the variables that their keys become."""

GATHERED = {"report": "inputs"}
"""Stage -> the port that takes a list; its component has a named input for each member."""

UI_TYPES = ("system.Metrics", "system.HTML", "system.Markdown", "system.ClassificationMetrics")

QUEUE = "posttrain"
RESEARCH, NIGHTLY = "posttrain-research", "posttrain-nightly"
"""Priority classes of `k8s/`."""

HOUR = 3600
DEADLINES = {"sft": 24 * HOUR, "reward_model": 24 * HOUR, "rl": 7 * 24 * HOUR}
"""Stage -> seconds after which its pod is ended for good; others have `DEADLINE`."""
DEADLINE = 12 * HOUR


SILENCE = {"cpu": 2 * HOUR, "train": HOUR, "rollout": HOUR}
"""Class of pool -> seconds without a sign of life after which a task counts as hung."""

CPU, MEMORY = "1", "4Gi"


class Pool(NamedTuple):
    """Where tasks of one class run: node labels, how many accelerators (a quantity as text), a
    node affinity, and the memory of a pod."""

    nodes: Any
    accelerators: Any = None
    affinity: Any = None
    memory: Any = MEMORY


class Steps:
    """Adds tasks to the pipeline that is being defined; a call returns the task's outputs."""

    def __init__(
        self,
        *,
        accelerator: Any = "",
        tolerations: Any = None,
        pools: dict[str, Pool],
        priority: str = RESEARCH,
        **run: Any,
    ):
        self._accelerator = accelerator
        self._tolerations = tolerations
        self._pools = pools
        self._priority = priority
        self._run = run

    def __call__(self, task: str, title: str, **inputs: Any) -> dict[str, PipelineChannel]:
        """Add `task`; the stage's outputs by port, without those that KFP's UI alone shows."""
        step = component_of(task)(**self._run, **inputs)
        step.set_display_name(title)
        # A key of KFP's cache is fixed when the graph is compiled, and ours holds what came in.
        step.set_caching_options(False)
        step.set_retry(RETRIES, backoff_duration=BACKOFF, backoff_factor=1.0)
        self._furnish(step, TASKS[task])
        self._label(step, task)
        self._place(step, TASKS[task])
        return {
            port: channel
            for port, channel in step.outputs.items()
            if not str(channel.channel_type).startswith(UI_TYPES)
        }

    def _furnish(self, step: PipelineTask, stage: str) -> None:
        """Environment, volumes and the user that the image is made for."""
        step.set_env_variable("OMP_WAIT_POLICY", "passive")
        step.set_env_variable("POSTTRAIN_HEARTBEAT_SECONDS", str(SILENCE[pool_of(stage)]))
        secrets = {"posttrain-mlflow": MLFLOW_LOGIN, **SECRETS.get(stage, {})}
        for name, keys in secrets.items():
            kubernetes.use_secret_as_env(step, name, keys, optional=True)
        kubernetes.use_config_map_as_env(step, CONFIG, {key: key for key in CONFIG_KEYS})
        kubernetes.use_field_path_as_env(
            step, "POSTTRAIN_RUN_ID", "metadata.labels['pipeline/runid']"
        )
        kubernetes.mount_pvc(step, STORE_CLAIM, STORE_PATH)
        kubernetes.use_config_map_as_volume(step, CA_CONFIG, CA_PATH, optional=True)
        kubernetes.empty_dir_mount(step, "tmp", "/tmp")
        kubernetes.set_security_context(
            step, run_as_user=USER, run_as_group=USER, run_as_non_root=True
        )

    def _label(self, step: PipelineTask, task: str) -> None:
        """What network policies, quotas and the queue know a pod by."""
        for key, value in {
            "posttrain/stage": TASKS[task],
            "posttrain/task": task,
            "posttrain/pool": pool_of(TASKS[task]),
            "kueue.x-k8s.io/queue-name": QUEUE,
            "kueue.x-k8s.io/priority-class": self._priority,
        }.items():
            kubernetes.add_pod_label(step, key, value)

    def _place(self, step: PipelineTask, stage: str) -> None:
        """Nodes, accelerators, memory and deadline."""
        pool = self._pools[pool_of(stage)]
        step.set_cpu_request(CPU).set_memory_request(pool.memory).set_memory_limit(pool.memory)
        kubernetes.set_timeout(step, DEADLINES.get(stage, DEADLINE))
        kubernetes.add_node_selector_json(step, pool.nodes)
        if pool.accelerators is not None:
            step.set_accelerator_type(self._accelerator).set_accelerator_limit(pool.accelerators)
            kubernetes.add_toleration_json(step, self._tolerations)
        if pool.affinity is not None:
            kubernetes.add_node_affinity_json(step, pool.affinity)


def component_of(task: str) -> PythonComponent:
    """The component of a task's stage under the task's own name: `benchmark` as `benchmark_rl`."""
    stage = TASKS[task]
    component = getattr(importlib.import_module(f"components.{stage}.component"), stage)
    spec = copy.deepcopy(component.component_spec)
    spec.name = task.replace("_", "-")
    spec.inputs["task"].default = task
    return PythonComponent(component_spec=spec, python_func=component.python_func)
