"""Kubeflow component of the stage `raw`."""

from kfp import dsl
from kfp.dsl import Dataset, Metrics, Output

from components.container import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def raw(
    rows: Output[Dataset],
    metrics: Output[Metrics],
    task: str = "raw",
    recipe: str = "demo",
    seed: int = 0,
    overrides: str = "",
):
    """Bring in or generate the raw rows."""
    from posttrain.kubeflow import run_component

    run = {"task": task, "recipe": recipe, "seed": seed, "overrides": overrides}
    run_component("raw", metrics, **run, rows=rows)
