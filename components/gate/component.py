"""Kubeflow component of the stage `gate`."""

from kfp import dsl
from kfp.dsl import Artifact, Dataset, Input, Markdown, Metrics, Model, Output

from components.container import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def gate(
    challenger: Input[Dataset],
    champion: Input[Dataset],
    policy: Input[Model],
    verdict: Output[Artifact],
    metrics: Output[Metrics],
    note: Output[Markdown],
    task: str = "gate",
    recipe: str = "demo",
    seed: int = 0,
    overrides: str = "",
):
    """Compare with the champion; promote, refuse or ask for a look."""
    from posttrain.kubeflow import run_component, show

    run = {"task": task, "recipe": recipe, "seed": seed, "overrides": overrides}
    ports = {"challenger": challenger, "champion": champion, "policy": policy, "verdict": verdict}
    run_component("gate", metrics, **run, **ports)
    show(verdict, "verdict.md", note)
