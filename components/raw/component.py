"""Kubeflow component of the stage `raw`."""

from kfp import dsl
from kfp.dsl import Dataset, Metrics, Output

from components.container import image_of


@dsl.component(base_image=image_of("raw"), install_kfp_package=False)
def raw(
    rows: Output[Dataset],
    metrics: Output[Metrics],
    revision: str = "",
    task: str = "raw",
    recipe: str = "demo",
    seed: int = 0,
    overrides: str = "",
    budget: float = 0.0,
):
    """Bring in or generate the raw rows."""
    from posttrain.kubeflow import run_component

    run = {"task": task, "recipe": recipe, "seed": seed, "overrides": overrides, "budget": budget}
    run_component("raw", metrics, **run, rows=rows, revision=revision)
