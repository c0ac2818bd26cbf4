"""Kubeflow component of the stage `curate_reduce`."""

from kfp import dsl
from kfp.dsl import Artifact, Dataset, Input, Metrics, Output

from components.container import image_of


@dsl.component(base_image=image_of("curate_reduce"), install_kfp_package=False)
def curate_reduce(
    rows: Input[Dataset],
    finished: Input[list[Artifact]],
    prompts: Output[Dataset],
    demonstrations: Output[Dataset],
    preferences: Output[Dataset],
    evaluation: Output[Dataset],
    metrics: Output[Metrics],
    task: str = "curate_reduce",
    recipe: str = "demo",
    seed: int = 0,
    overrides: str = "",
    budget: float = 0.0,
):
    """Decide what needs all the rows, and write what is kept."""
    from posttrain.kubeflow import run_component

    run = {"task": task, "recipe": recipe, "seed": seed, "overrides": overrides, "budget": budget}
    run_component(
        "curate_reduce",
        metrics,
        **run,
        rows=rows,
        finished=finished,
        prompts=prompts,
        demonstrations=demonstrations,
        preferences=preferences,
        evaluation=evaluation,
    )
