"""Kubeflow component of the stage `best_of_n`."""

from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

from components.container import image_of


@dsl.component(base_image=image_of("best_of_n"), install_kfp_package=False)
def best_of_n(
    scores: Output[Dataset],
    metrics: Output[Metrics],
    policy: Input[Model] = None,
    evaluation: Input[Dataset] = None,
    candidates: Input[Dataset] = None,
    judge: Input[Model] = None,
    task: str = "best_of_n",
    recipe: str = "demo",
    seed: int = 0,
    overrides: str = "",
    budget: float = 0.0,
):
    """Score one pass of N samples a prompt for every smaller N."""
    from posttrain.kubeflow import run_component

    run = {"task": task, "recipe": recipe, "seed": seed, "overrides": overrides, "budget": budget}
    run_component(
        "best_of_n",
        metrics,
        **run,
        policy=policy,
        evaluation=evaluation,
        candidates=candidates,
        judge=judge,
        scores=scores,
    )
