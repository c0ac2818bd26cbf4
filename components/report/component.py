"""Kubeflow component of the stage `report`; a graph gives those inputs that it has."""

from kfp import dsl
from kfp.dsl import HTML, Artifact, Input, Metrics, Output

from components.container import image_of


@dsl.component(base_image=image_of("report"), install_kfp_package=False)
def report(
    page: Output[Artifact],
    metrics: Output[Metrics],
    html: Output[HTML],
    raw: Input[Artifact] = None,
    prompts: Input[Artifact] = None,
    demonstrations: Input[Artifact] = None,
    preferences: Input[Artifact] = None,
    evaluation: Input[Artifact] = None,
    base: Input[Artifact] = None,
    sft: Input[Artifact] = None,
    reward_model: Input[Artifact] = None,
    reject: Input[Artifact] = None,
    rejected_sft: Input[Artifact] = None,
    rl: Input[Artifact] = None,
    best_of_n: Input[Artifact] = None,
    benchmark_base: Input[Artifact] = None,
    benchmark_sft: Input[Artifact] = None,
    benchmark_rejected_sft: Input[Artifact] = None,
    benchmark_rl: Input[Artifact] = None,
    gate: Input[Artifact] = None,
    task: str = "report",
    recipe: str = "demo",
    seed: int = 0,
    overrides: str = "",
    budget: float = 0.0,
):
    """Write what people look at: one HTML page and summary.json."""
    from posttrain.kubeflow import run_component, show

    data = [raw, prompts, demonstrations, preferences, evaluation]
    models = [base, sft, reward_model, reject, rejected_sft, rl]
    scores = [benchmark_base, benchmark_sft, benchmark_rejected_sft, benchmark_rl, best_of_n]
    run = {"task": task, "recipe": recipe, "seed": seed, "overrides": overrides, "budget": budget}
    run_component("report", metrics, **run, inputs=[*data, *models, *scores, gate], page=page)
    show(page, "report.html", html)
