"""Kubeflow component of the stage `curate_learn`."""

from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Output

from components.container import image_of


@dsl.component(base_image=image_of("curate_learn"), install_kfp_package=False)
def curate_learn(
    rows: Input[Dataset],
    evaluation: Output[Dataset],
    metrics: Output[Metrics],
    task: str = "curate_learn",
    recipe: str = "demo",
    seed: int = 0,
    overrides: str = "",
    budget: float = 0.0,
):
    """Copy the rows that filters learn from."""
    from posttrain.kubeflow import run_component

    run = {"task": task, "recipe": recipe, "seed": seed, "overrides": overrides, "budget": budget}
    run_component("curate_learn", metrics, **run, rows=rows, evaluation=evaluation)
