"""Kubeflow component of the stage `benchmark`."""

from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

from components.container import image_of


@dsl.component(base_image=image_of("benchmark"), install_kfp_package=False)
def benchmark(
    policy: Input[Model],
    scores: Output[Dataset],
    metrics: Output[Metrics],
    evaluation: Input[Dataset] = None,
    judge: Input[Model] = None,
    task: str = "benchmark",
    recipe: str = "demo",
    seed: int = 0,
    overrides: str = "",
    budget: float = 0.0,
):
    """Score a policy on suites."""
    from posttrain.kubeflow import run_component

    run = {"task": task, "recipe": recipe, "seed": seed, "overrides": overrides, "budget": budget}
    run_component(
        "benchmark",
        metrics,
        **run,
        policy=policy,
        evaluation=evaluation,
        judge=judge,
        scores=scores,
    )
