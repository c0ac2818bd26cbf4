"""Kubeflow component of the stage `reward_model`."""

from kfp import dsl
from kfp.dsl import ClassificationMetrics, Dataset, Input, Metrics, Model, Output

from components.container import image_of


@dsl.component(base_image=image_of("reward_model"), install_kfp_package=False)
def reward_model(
    policy: Input[Model],
    preferences: Input[Dataset],
    judge: Output[Model],
    metrics: Output[Metrics],
    pairs: Output[ClassificationMetrics],
    task: str = "reward_model",
    recipe: str = "demo",
    seed: int = 0,
    overrides: str = "",
    budget: float = 0.0,
):
    """Train a judge on preferences and test it before anybody may use it."""
    from posttrain.kubeflow import run_component, show_pairs

    run = {"task": task, "recipe": recipe, "seed": seed, "overrides": overrides, "budget": budget}
    report = run_component(
        "reward_model", metrics, **run, policy=policy, preferences=preferences, judge=judge
    )
    show_pairs(report, pairs)
