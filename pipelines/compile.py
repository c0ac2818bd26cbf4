"""Write both forms of every graph to `compiled/`; the same code gives the same bytes.

For Argo these are what a cluster is given once: templates to start runs from, and the schedule.
"""

from pathlib import Path

from kfp.compiler import Compiler

from pipelines import argo
from pipelines.curation import curation
from pipelines.nightly_eval import SCHEDULE, TIMEZONE, nightly_eval
from pipelines.posttraining import posttraining

COMPILED = Path(__file__).parent / "compiled"


def compile_all(folder: Path = COMPILED) -> list[Path]:
    """Write two files a graph; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for pipeline, workflow in (
        (posttraining, argo.workflow_template(posttraining)),
        (curation, argo.workflow_template(curation)),
        (nightly_eval, argo.cron_workflow(nightly_eval, SCHEDULE, TIMEZONE)),
    ):
        name = pipeline.name.replace("-", "_")
        kfp_path, argo_path = folder / f"{name}.kfp.yaml", folder / f"{name}.argo.yaml"
        Compiler().compile(pipeline, str(kfp_path))
        argo_path.write_text(workflow.to_yaml(sort_keys=True), encoding="utf-8")
        written += [kfp_path, argo_path]
    return written


if __name__ == "__main__":
    print("\n".join(str(path) for path in compile_all()))
