"""Kubeflow component of the stage `base`."""

from kfp import dsl
from kfp.dsl import Metrics, Model, Output

from components.container import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def base(
    policy: Output[Model],
    metrics: Output[Metrics],
    model: str = "",
    task: str = "base",
    recipe: str = "demo",
    seed: int = 0,
    overrides: str = "",
):
    """Bring in the base policy."""
    from posttrain.kubeflow import run_component

    run = {"task": task, "recipe": recipe, "seed": seed, "overrides": overrides}
    run_component("base", metrics, **run, policy=policy, model=model)
