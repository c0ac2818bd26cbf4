"""Kubeflow component of the stage `gate`."""

from kfp import dsl
from kfp.dsl import Artifact, Dataset, Input, Markdown, Metrics, Model, Output

from components.container import image_of


@dsl.component(base_image=image_of("gate"), install_kfp_package=False)
def gate(
    challenger: Input[Dataset],
    champion: Input[Dataset],
    policy: Input[Model],
    verdict: Output[Artifact],
    metrics: Output[Metrics],
    note: Output[Markdown],
    model_name: str = "",
    task: str = "gate",
    recipe: str = "demo",
    seed: int = 0,
    overrides: str = "",
    budget: float = 0.0,
):
    """Compare with the champion; promote, refuse or ask for a look."""
    from posttrain.kubeflow import run_component, show

    run = {"task": task, "recipe": recipe, "seed": seed, "overrides": overrides, "budget": budget}
    ports = {"challenger": challenger, "champion": champion, "policy": policy, "verdict": verdict}
    run_component("gate", metrics, **run, **ports, model_name=model_name)
    show(verdict, "verdict.md", note)
