"""Reading the compiled graphs: their pods, by name."""

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
COMPILED = ROOT / "pipelines/compiled"
ARGO = sorted(COMPILED.glob("*.argo.yaml"))
KFP = sorted(COMPILED.glob("*.kfp.yaml"))


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def kfp_pods(path: Path) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Executor -> its container, and the Kubernetes settings of its pod."""
    spec, platform = yaml.safe_load_all(path.read_text(encoding="utf-8"))
    settings = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    containers = spec["deploymentSpec"]["executors"]
    assert settings.keys() == containers.keys()
    return {key: (containers[key]["container"], each) for key, each in settings.items()}


def argo_spec(manifest: dict[str, Any]) -> dict[str, Any]:
    spec = manifest["spec"]
    return dict(spec.get("workflowSpec", spec))


def argo_pods(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Template -> what makes its pod; those without a container make none."""
    return {each["name"]: each for each in spec["templates"] if "container" in each}
