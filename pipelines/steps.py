"""How a stage becomes a task of a graph: named, titled, retried, never cached, on its node pool.

Kubernetes settings have no effect in `kfp.local`; there the same graph runs as plain processes.
"""

import copy
import importlib
from typing import Any, NamedTuple

from kfp import kubernetes
from kfp.dsl import PipelineTask
from kfp.dsl.pipeline_channel import PipelineChannel
from kfp.dsl.python_component import PythonComponent

from posttrain.stages import TASKS

CONFIG = "posttrain"
"""The ConfigMap of `k8s/`: its keys become environment variables of the same names."""

CONFIG_KEYS = ("POSTTRAIN_STORE", "POSTTRAIN_DATA", "MLFLOW_TRACKING_URI")
STORE_CLAIM, STORE_PATH = "posttrain-store", "/store"
RETRIES, BACKOFF = 3, "30s"

SECRETS = {"gate": ("posttrain-webhook", {"url": "POSTTRAIN_WEBHOOK"})}
"""Stage -> a Secret of the cluster and the variables that its keys become, if there is one."""

GATHERED = {"report": "inputs"}
"""Stage -> the port that takes a list; its component has a named input for each member."""

UI_TYPES = ("system.Metrics", "system.HTML", "system.Markdown", "system.ClassificationMetrics")

POOLS = {
    "sft": "train",
    "reward_model": "train",
    "rl": "train",
    "reject": "rollout",
    "best_of_n": "rollout",
    "benchmark": "rollout",
}
"""Stage -> class of node pool; a stage that is not named here runs on `cpu`."""


class Pool(NamedTuple):
    """Where tasks of one class run: node labels, and how many accelerators (a quantity as text)."""

    nodes: Any
    accelerators: Any = None


class Steps:
    """Adds tasks to the pipeline that is being defined; a call returns the task's outputs."""

    def __init__(self, *, accelerator: Any, tolerations: Any, pools: dict[str, Pool], **run: Any):
        self._accelerator = accelerator
        self._tolerations = tolerations
        self._pools = pools
        self._run = run

    def __call__(self, task: str, title: str, **inputs: Any) -> dict[str, PipelineChannel]:
        """Add `task`; the stage's outputs by port, without those that KFP's UI alone shows."""
        step = component_of(task)(**self._run, **inputs)
        step.set_display_name(title)
        step.set_caching_options(False)
        step.set_retry(RETRIES, backoff_duration=BACKOFF)
        step.set_env_variable("OMP_WAIT_POLICY", "passive")
        if TASKS[task] in SECRETS:
            kubernetes.use_secret_as_env(step, *SECRETS[TASKS[task]], optional=True)
        self._place(step, POOLS.get(TASKS[task], "cpu"))
        return {
            port: channel
            for port, channel in step.outputs.items()
            if not str(channel.channel_type).startswith(UI_TYPES)
        }

    def _place(self, step: PipelineTask, pool_class: str) -> None:
        pool = self._pools[pool_class]
        kubernetes.add_node_selector_json(step, pool.nodes)
        if pool.accelerators is not None:
            step.set_accelerator_type(self._accelerator).set_accelerator_limit(pool.accelerators)
            kubernetes.add_toleration_json(step, self._tolerations)
        kubernetes.mount_pvc(step, STORE_CLAIM, STORE_PATH)
        kubernetes.use_config_map_as_env(step, CONFIG, {key: key for key in CONFIG_KEYS})
        kubernetes.use_field_path_as_env(
            step, "POSTTRAIN_RUN_ID", "metadata.labels['pipeline/runid']"
        )
        kubernetes.set_security_context(step, run_as_non_root=True)


def component_of(task: str) -> PythonComponent:
    """The component of a task's stage under the task's own name: `benchmark` as `benchmark_rl`."""
    stage = TASKS[task]
    component = getattr(importlib.import_module(f"components.{stage}.component"), stage)
    spec = copy.deepcopy(component.component_spec)
    spec.name = task.replace("_", "-")
    spec.inputs["task"].default = task
    return PythonComponent(component_spec=spec, python_func=component.python_func)
