"""The compiled graphs: up to date, valid, and as Kubeflow is to run them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import components
from tests.compiled import ARGO, COMPILED, KFP, ROOT, kfp_pods, load

from pipelines.steps import DEADLINE, DEADLINES, RETRIES, SILENCE
from posttrain.stages import TASKS

SCHEMAS = ROOT / os.environ.get("POSTTRAIN_SCHEMAS", "../shared/schemas")
KIND = "io.argoproj.workflow.v1alpha1."
LABELS = {
    "posttrain/stage",
    "posttrain/task",
    "posttrain/pool",
    "kueue.x-k8s.io/queue-name",
    "kueue.x-k8s.io/priority-class",
}


def test_golden_files_are_what_the_code_compiles_to(tmp_path: Path) -> None:
    """In a process of its own: no image set, another hash seed."""
    environment = {k: v for k, v in os.environ.items() if "POSTTRAIN_IMAGE" not in k}
    script = (
        "import sys, pathlib; from pipelines.compile import compile_all;"
        "compile_all(pathlib.Path(sys.argv[1]))"
    )
    subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        check=True,
        cwd=ROOT,
        env=environment | {"PYTHONHASHSEED": "7"},
    )
    fresh = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    kept = {path.name: path.read_text(encoding="utf-8") for path in COMPILED.glob("*.yaml")}
    assert fresh.keys() == kept.keys()
    stale = [name for name in fresh if fresh[name] != kept[name]]
    assert not stale, "run `make compile` and look at the difference"


@pytest.mark.parametrize("path", KFP, ids=lambda p: p.name)
def test_kfp_reads_its_own_form(path: Path) -> None:
    assert components.load_component_from_file(str(path)).pipeline_spec.root.dag.tasks


@pytest.mark.parametrize("path", KFP, ids=lambda p: p.name)
def test_kfp_tasks_are_titled_retried_and_not_cached(path: Path) -> None:
    spec, _ = yaml.safe_load_all(path.read_text(encoding="utf-8"))
    dags = [each["dag"] for each in (spec["root"], *spec["components"].values()) if "dag" in each]
    for name, task in (pair for dag in dags for pair in dag["tasks"].items()):
        assert task["taskInfo"]["name"] != name
        if "parameterIterator" in task:
            continue
        # As long each time: of twenty retries that double, the last would wait for a week.
        policy = {"maxRetryCount": RETRIES, "backoffDuration": "30s", "backoffFactor": 1.0}
        assert task["retryPolicy"].items() >= policy.items()
        assert not task["cachingOptions"].get("enableCache")
    for container, settings in kfp_pods(path).values():
        pool = settings["podMetadata"]["labels"]["posttrain/pool"]
        nodes = settings["nodeSelector"]["nodeSelectorJson"]["componentInputParameter"]
        assert nodes.removeprefix("pipelinechannel--") == f"{pool}_nodes"
        assert f"{pool}_nodes" in spec["root"]["inputDefinitions"]["parameters"]
        asked = container["resources"]
        assert asked["resourceMemoryLimit"] == asked["resourceMemoryRequest"]
        assert ("accelerator" in asked) == (pool != "cpu") == bool(settings.get("tolerations"))
        affinity = [each["nodeAffinityJson"] for each in settings.get("nodeAffinity", [])]
        wanted = [] if pool == "cpu" else [{"componentInputParameter": f"{pool}_affinity"}]
        assert affinity == wanted


@pytest.mark.parametrize("path", KFP, ids=lambda p: p.name)
def test_kfp_pods_have_what_the_cluster_knows_them_by(path: Path) -> None:
    """Labels, deadline, heartbeat, volumes, and an identity: the rest of the restricted profile is
    what Kubeflow itself gives to every pod."""
    for container, settings in kfp_pods(path).values():
        labels = settings["podMetadata"]["labels"]
        assert labels.keys() == LABELS
        stage, pool = labels["posttrain/stage"], labels["posttrain/pool"]
        assert TASKS[labels["posttrain/task"]] == stage
        assert settings["activeDeadlineSeconds"] == str(DEADLINES.get(stage, DEADLINE))
        env = {given["name"]: given["value"] for given in container["env"]}
        assert env["POSTTRAIN_HEARTBEAT_SECONDS"] == str(SILENCE[pool])
        target = "eval" if pool == "cpu" else "train"
        assert container["image"] == f"localhost/posttrain:{target}"
        assert settings["securityContext"] == {
            "runAsUser": "1000",
            "runAsGroup": "1000",
            "runAsNonRoot": True,
        }
        assert settings["emptyDirMounts"] == [{"volumeName": "tmp", "mountPath": "/tmp"}]
        (ca,) = settings["configMapAsVolume"]
        assert (ca["configMapName"], ca["mountPath"]) == ("posttrain-ca", "/etc/posttrain")
        assert ca["optional"]
        (config,) = settings["configMapAsEnv"]
        assert {key["envVar"] for key in config["keyToEnv"]} >= {"MLFLOW_TRACKING_URI"}
        logins = [each for each in settings["secretAsEnv"] if each["optional"]]
        assert "posttrain-mlflow" in {each["secretName"] for each in logins}


def test_nothing_is_installed_at_run_time() -> None:
    for path in COMPILED.glob("*.yaml"):
        assert "pip install" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", ARGO, ids=lambda p: p.name)
def test_argo_form_fits_the_schema(path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    file = SCHEMAS / "argo/schema.json"
    if not file.is_file():
        pytest.skip(f"no Argo schema at {file}: set POSTTRAIN_SCHEMAS")
    schema = json.loads(file.read_text(encoding="utf-8"))
    manifest = load(path)
    definition = {"$ref": f"#/definitions/{KIND}{manifest['kind']}"}
    jsonschema.validate(manifest, schema | definition | {"oneOf": [definition]})
    assert list(unknown_keys(manifest, definition, schema["definitions"], manifest["kind"])) == []


def unknown_keys(value: Any, schema: dict[str, Any], definitions: dict[str, Any], at: str) -> Any:
    """Keys that the schema does not know; it would let them pass, and so would the server."""
    while "$ref" in schema:
        schema = definitions[schema["$ref"].removeprefix("#/definitions/")]
    if isinstance(value, dict):
        known, other = schema.get("properties", {}), schema.get("additionalProperties")
        for key, inner in value.items():
            if key in known:
                yield from unknown_keys(inner, known[key], definitions, f"{at}.{key}")
            elif other is None:
                yield f"{at}.{key}"
            else:
                yield from unknown_keys(inner, other, definitions, f"{at}.{key}")
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from unknown_keys(inner, schema.get("items", {}), definitions, f"{at}[{i}]")


def test_unknown_keys_are_found() -> None:
    definitions = {
        "Pod": {
            "properties": {
                "name": {"type": "string"},
                "labels": {"additionalProperties": {"type": "string"}},
                "none": {"type": "object"},
            }
        }
    }
    pod = {"name": "a", "nmae": "b", "labels": {"any": "c"}, "none": {"some": 1}}
    found = unknown_keys([pod], {"items": {"$ref": "#/definitions/Pod"}}, definitions, "x")
    assert list(found) == ["x[0].nmae", "x[0].none.some"]
