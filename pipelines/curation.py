"""Curation on many machines: the shards in parts, each judged on a machine of its own, then what
needs all the rows. The four outputs are, byte for byte, those of the task `curate`.
"""

from kfp import dsl

from pipelines.steps import Pool, Steps

PARTS = ["1/4", "2/4", "3/4", "4/4"]


@dsl.pipeline(name="curation", display_name="Curation on many machines")
def curation(
    recipe: str = "demo",
    seed: int = 0,
    overrides: str = "",
    data_revision: str = "",
    budget: float = 0.0,
    parts: list = PARTS,
    cpu_nodes: dict = {},  # noqa: B006 - the form in which KFP reads a default
):
    """Bring in raw rows and curate them, part by part.

    Args:
        recipe: Named bundle of options that ships with posttrain, such as demo or real.
        seed: Seed of every random choice. Same seed, same artifacts.
        overrides: Options laid over the recipe, as JSON: {"curate": {"workers": 4}}.
        data_revision: Digest of the raw rows, or its beginning; other rows are refused. Empty: any.
        budget: What a run may cost, in units of the price table. 0: no limit.
        parts: The parts of the shards, as a JSON list: ["1/2", "2/2"].
        cpu_nodes: Node labels for all tasks, as JSON. {} is anywhere.
    """
    run = {"recipe": recipe, "seed": seed, "overrides": overrides, "budget": budget}
    step = Steps(pools={"cpu": Pool(cpu_nodes)}, **run)

    rows = step("raw", "Raw rows", revision=data_revision)["rows"]
    learned = step("curate_learn", "Rows to learn from", rows=rows)["evaluation"]
    with dsl.ParallelFor(parts, name="parts") as part:
        mapped = step("curate_map", "Judge a part", rows=rows, evaluation=learned, part=part)
    finished = dsl.Collected(mapped["finished"])
    step("curate_reduce", "Decide over all parts", rows=rows, finished=finished)
