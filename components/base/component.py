"""Kubeflow component of the stage `base`."""

from kfp import dsl
from kfp.dsl import Metrics, Model, Output

from components.container import image_of


@dsl.component(base_image=image_of("base"), install_kfp_package=False)
def base(
    policy: Output[Model],
    metrics: Output[Metrics],
    model: str = "",
    task: str = "base",
    recipe: str = "demo",
    seed: int = 0,
    overrides: str = "",
    budget: float = 0.0,
):
    """Bring in the base policy."""
    from posttrain.kubeflow import run_component

    run = {"task": task, "recipe": recipe, "seed": seed, "overrides": overrides, "budget": budget}
    run_component("base", metrics, **run, policy=policy, model=model)
