"""Kubeflow component of the stage `curate`."""

from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Output

from components.container import image_of


@dsl.component(base_image=image_of("curate"), install_kfp_package=False)
def curate(
    rows: Input[Dataset],
    prompts: Output[Dataset],
    demonstrations: Output[Dataset],
    preferences: Output[Dataset],
    evaluation: Output[Dataset],
    metrics: Output[Metrics],
    task: str = "curate",
    recipe: str = "demo",
    seed: int = 0,
    overrides: str = "",
    budget: float = 0.0,
):
    """Curate raw rows into prompts, demonstrations, preferences and held-out prompts."""
    from posttrain.kubeflow import run_component

    run = {"task": task, "recipe": recipe, "seed": seed, "overrides": overrides, "budget": budget}
    run_component(
        "curate",
        metrics,
        **run,
        rows=rows,
        prompts=prompts,
        demonstrations=demonstrations,
        preferences=preferences,
        evaluation=evaluation,
    )
