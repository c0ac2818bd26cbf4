"""Kubeflow component of the stage `judge`."""

from kfp import dsl
from kfp.dsl import Metrics, Model, Output

from components.container import image_of


@dsl.component(base_image=image_of("judge"), install_kfp_package=False)
def judge(
    judge: Output[Model],
    metrics: Output[Metrics],
    folder: str = "",
    task: str = "judge",
    recipe: str = "demo",
    seed: int = 0,
    overrides: str = "",
    budget: float = 0.0,
):
    """Bring in a judge that was trained and tested before."""
    from posttrain.kubeflow import run_component

    run = {"task": task, "recipe": recipe, "seed": seed, "overrides": overrides, "budget": budget}
    run_component("judge", metrics, **run, judge=judge, folder=folder)
