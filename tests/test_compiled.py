"""The compiled graphs: up to date, valid, restricted, and placed by parameter."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import components

from pipelines import argo
from pipelines.nightly_eval import nightly_eval
from pipelines.posttraining import posttraining

ROOT = Path(__file__).parents[1]
COMPILED = ROOT / "pipelines/compiled"
SCHEMAS = ROOT / os.environ.get("POSTTRAIN_SCHEMAS", "../shared/schemas")
ARGO = sorted(COMPILED.glob("*.argo.yaml"))
KFP = sorted(COMPILED.glob("*.kfp.yaml"))
KIND = "io.argoproj.workflow.v1alpha1."


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_golden_files_are_what_the_code_compiles_to(tmp_path: Path) -> None:
    """In a process of its own: no image set, another hash seed."""
    environment = {k: v for k, v in os.environ.items() if k != "POSTTRAIN_IMAGE"}
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
    spec, platform = yaml.safe_load_all(path.read_text(encoding="utf-8"))
    dags = [each["dag"] for each in (spec["root"], *spec["components"].values()) if "dag" in each]
    for name, task in (pair for dag in dags for pair in dag["tasks"].items()):
        assert task["taskInfo"]["name"] != name
        if "parameterIterator" in task:
            continue
        assert task["retryPolicy"]["maxRetryCount"] == argo.RETRIES
        assert not task["cachingOptions"].get("enableCache")
    placed = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert placed.keys() == spec["deploymentSpec"]["executors"].keys()
    for executor, settings in placed.items():
        pool = settings["nodeSelector"]["nodeSelectorJson"]["componentInputParameter"]
        pool = pool.removeprefix("pipelinechannel--")
        assert pool in spec["root"]["inputDefinitions"]["parameters"]
        asked = spec["deploymentSpec"]["executors"][executor]["container"].get("resources")
        assert bool(asked) == (pool != "cpu_nodes") == bool(settings.get("tolerations"))


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
        known, other = schema.get("properties"), schema.get("additionalProperties")
        for key, inner in value.items():
            if known is not None and key in known:
                yield from unknown_keys(inner, known[key], definitions, f"{at}.{key}")
            elif known is not None and other is None:
                yield f"{at}.{key}"
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from unknown_keys(inner, schema.get("items", {}), definitions, f"{at}[{i}]")


def test_unknown_keys_are_found() -> None:
    definitions = {"Pod": {"properties": {"name": {"type": "string"}}}}
    found = unknown_keys(
        [{"name": "a", "nmae": "b"}], {"items": {"$ref": "#/definitions/Pod"}}, definitions, "x"
    )
    assert list(found) == ["x[0].nmae"]


@pytest.mark.parametrize("path", ARGO, ids=lambda p: p.name)
def test_argo_pods_are_restricted_and_retried_by_exit_code(path: Path) -> None:
    manifest = load(path)
    spec = manifest["spec"].get("workflowSpec", manifest["spec"])
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    containers = [t for t in spec["templates"] if "container" in t]
    assert containers
    for template in containers:
        assert template["container"]["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert "asInt(lastRetry.exitCode) == 75" in template["retryStrategy"]["expression"]
        mounts = [mount["mountPath"] for mount in template["container"]["volumeMounts"]]
        paths = [
            artifact["path"]
            for side in ("inputs", "outputs")
            for artifact in template.get(side, {}).get("artifacts", [])
        ]
        assert paths
        assert all(any(p.startswith(f"{mount}/") for mount in mounts) for p in paths)


def test_the_nightly_run_is_never_overtaken() -> None:
    spec = load(COMPILED / "nightly_eval.argo.yaml")["spec"]
    assert (spec["concurrencyPolicy"], spec["timezone"]) == ("Forbid", "Etc/UTC")
    assert spec["schedules"] == ["30 2 * * *"]


@pytest.mark.parametrize("name", ["nightly_eval", "posttraining"])
def test_the_webhook_comes_from_a_secret_and_reaches_the_gate_alone(name: str) -> None:
    """By reference, and optional: a cluster without the Secret runs all the same."""
    wanted = {"name": "posttrain-webhook", "key": "url", "optional": True}
    manifest = load(COMPILED / f"{name}.argo.yaml")
    spec = manifest["spec"].get("workflowSpec", manifest["spec"])
    holders = {
        template["name"]: given
        for template in spec["templates"]
        for given in template.get("container", {}).get("env", [])
        if "valueFrom" in given
    }
    assert holders == {"gate": {"name": "POSTTRAIN_WEBHOOK", "valueFrom": {"secretKeyRef": wanted}}}
    _, platform = yaml.safe_load_all((COMPILED / f"{name}.kfp.yaml").read_text(encoding="utf-8"))
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert [key for key, each in executors.items() if "secretAsEnv" in each] == ["exec-gate"]


def test_argo_places_by_the_parameters_of_the_pipeline() -> None:
    built = argo.workflow(
        posttraining,
        seed=3,
        train_accelerators="8",
        train_nodes={"pool": "h200"},
        tolerations=[{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    )
    spec = yaml.safe_load(built.to_yaml())["spec"]
    templates = {t["name"]: t for t in spec["templates"]}
    assert {"name": "seed", "value": "3"} in spec["arguments"]["parameters"]
    assert templates["rl"]["nodeSelector"] == {"pool": "h200"}
    assert templates["rl"]["container"]["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    assert templates["rl"]["tolerations"][0]["key"] == "gpu"
    assert templates["reject"]["tolerations"][0]["key"] == "gpu"
    assert "resources" not in templates["reject"]["container"]
    assert not {"nodeSelector", "tolerations"} & templates["curate"].keys()


def test_the_schedule_of_argo_takes_parameters_too() -> None:
    built = argo.cron_workflow(nightly_eval, "0 1 * * *", "Europe/Berlin", base_model="org/model")
    spec = yaml.safe_load(built.to_yaml())["spec"]
    assert spec["timezone"] == "Europe/Berlin"
    parameters = spec["workflowSpec"]["arguments"]["parameters"]
    assert {"name": "base_model", "value": "org/model"} in parameters
