"""Kubeflow component of the stage `curate_learn`."""

from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Output

from components.container import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def curate_learn(
    rows: Input[Dataset],
    evaluation: Output[Dataset],
    metrics: Output[Metrics],
    task: str = "curate_learn",
    recipe: str = "demo",
    seed: int = 0,
    overrides: str = "",
):
    """Copy the rows that filters learn from."""
    from posttrain.kubeflow import run_component

    run = {"task": task, "recipe": recipe, "seed": seed, "overrides": overrides}
    run_component("curate_learn", metrics, **run, rows=rows, evaluation=evaluation)
