"""Kubeflow component of the stage `curate_map`."""

from kfp import dsl
from kfp.dsl import Artifact, Dataset, Input, Metrics, Output

from components.container import image_of


@dsl.component(base_image=image_of("curate_map"), install_kfp_package=False)
def curate_map(
    rows: Input[Dataset],
    evaluation: Input[Dataset],
    finished: Output[Artifact],
    metrics: Output[Metrics],
    part: str = "",
    task: str = "curate_map",
    recipe: str = "demo",
    seed: int = 0,
    overrides: str = "",
    budget: float = 0.0,
):
    """Judge one part of the shards."""
    from posttrain.kubeflow import run_component

    run = {"task": task, "recipe": recipe, "seed": seed, "overrides": overrides, "budget": budget}
    given = {"rows": rows, "evaluation": evaluation, "finished": finished, "part": part}
    run_component("curate_map", metrics, **run, **given)
