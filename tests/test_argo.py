"""The graphs as Argo runs them: valid, restricted, placed by parameter, remembered by digest."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.compiled import ARGO, COMPILED, ROOT, argo_pods, argo_spec, kfp_pods, load

from pipelines import argo
from pipelines.argo_containers import CACHE_HOURS
from pipelines.nightly_eval import nightly_eval
from pipelines.posttraining import posttraining
from pipelines.steps import RETRIES
from posttrain.errors import ConfigError

PINNED = "example/posttrain@sha256:" + "0" * 63


@pytest.mark.parametrize("path", ARGO, ids=lambda p: p.name)
def test_argo_pods_are_restricted_and_retried_by_exit_code(path: Path) -> None:
    spec = argo_spec(load(path))
    assert spec["securityContext"] == {
        "fsGroup": 1000,
        "fsGroupChangePolicy": "OnRootMismatch",
        "runAsGroup": 1000,
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert argo_pods(spec)
    for template in argo_pods(spec).values():
        container = template["container"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        retry = template["retryStrategy"]
        assert "asInt(lastRetry.exitCode) == 75" in retry["expression"]
        # `maxDuration` counts from the first attempt: a long one would never be retried.
        assert retry["backoff"].keys() == {"cap", "duration", "factor"}
        assert retry["limit"] == str(RETRIES)
        mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
        paths = [
            artifact["path"]
            for side in ("inputs", "outputs")
            for artifact in template.get(side, {}).get("artifacts", [])
        ]
        assert paths
        assert all(any(p.startswith(f"{mount}/") for mount in mounts) for p in paths)
    assert "podSpecPatch" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", ARGO, ids=lambda p: p.name)
def test_both_forms_give_a_pod_the_same(path: Path) -> None:
    """Labels, image, deadline, memory, environment: Argo's pods are those of Kubeflow."""
    kfp = kfp_pods(path.with_name(path.name.replace(".argo.", ".kfp.")))
    for name, template in argo_pods(argo_spec(load(path))).items():
        container, settings = kfp[f"exec-{name}"]
        assert template["metadata"]["labels"] == settings["podMetadata"]["labels"]
        assert template["container"]["image"] == container["image"]
        assert template["activeDeadlineSeconds"] == settings["activeDeadlineSeconds"]
        resources = {"requests": {"cpu": "1", "memory": "4Gi"}, "limits": {"memory": "4Gi"}}
        assert template["container"]["resources"] == resources
        env = [each for each in template["container"]["env"] if "value" in each]
        assert env == [{"name": "HOME", "value": "/tmp"}, *container["env"]]
        volumes = {each["name"]: each for each in template["volumes"]}
        assert volumes["posttrain-ca"]["configMap"]["optional"]
        assert volumes["tmp"]["emptyDir"] == {}


@pytest.mark.parametrize("path", ARGO, ids=lambda p: p.name)
def test_argo_pods_hold_no_token_but_where_machines_are_asked_for(path: Path) -> None:
    spec = argo_spec(load(path))
    assert spec["automountServiceAccountToken"] is False
    assert spec["executor"] == {"serviceAccountName": spec["serviceAccountName"]}
    holders = [
        name for name, each in argo_pods(spec).items() if each.get("automountServiceAccountToken")
    ]
    assert holders == (["rl"] if "rl" in argo_pods(spec) else [])


@pytest.mark.parametrize("path", ARGO, ids=lambda p: p.name)
def test_argo_deletes_what_nobody_needs(path: Path) -> None:
    spec = argo_spec(load(path))
    assert spec["artifactGC"]["strategy"] == "OnWorkflowDeletion"
    assert spec["podGC"] == {"strategy": "OnPodSuccess"}
    # What is remembered points to artifacts that must still be there when a run has used them.
    most = max(int(each["activeDeadlineSeconds"]) for each in argo_pods(spec).values())
    kept = spec["ttlStrategy"]["secondsAfterCompletion"]
    assert CACHE_HOURS * 3600 + most < kept
    for template in argo_pods(spec).values():
        for artifact in template["outputs"].get("artifacts", []):
            assert artifact["archive"] == {"tar": {"compressionLevel": 0}}


def test_argo_gets_templates_to_start_from_and_a_schedule() -> None:
    kinds = {path.name.split(".")[0]: load(path)["kind"] for path in ARGO}
    assert kinds == {
        "posttraining": "WorkflowTemplate",
        "curation": "WorkflowTemplate",
        "nightly_eval": "CronWorkflow",
    }
    built = yaml.safe_load(argo.workflow(posttraining).to_yaml())
    assert (built["kind"], built["metadata"]["generateName"]) == ("Workflow", "posttraining-")
    assert built["spec"] == load(COMPILED / "posttraining.argo.yaml")["spec"]


def test_the_nightly_run_is_never_overtaken() -> None:
    spec = load(COMPILED / "nightly_eval.argo.yaml")["spec"]
    assert (spec["concurrencyPolicy"], spec["timezone"]) == ("Forbid", "Etc/UTC")
    assert spec["schedules"] == ["30 2 * * *"]
    assert spec["startingDeadlineSeconds"] == 7200
    assert spec["successfulJobsHistoryLimit"] == spec["failedJobsHistoryLimit"] == 7


@pytest.mark.parametrize("name", ["nightly_eval", "posttraining"])
def test_gates_of_one_champion_take_turns(name: str) -> None:
    """Even those of several graphs: the mutex is the namespace's."""
    pods = argo_pods(argo_spec(load(COMPILED / f"{name}.argo.yaml")))
    locks = {key: each.get("synchronization") for key, each in pods.items()}
    mutex = {"name": "champion-{{workflow.parameters.registered_model}}"}
    assert locks.pop("gate") == {"mutexes": [mutex]}
    assert set(locks.values()) == {None}


@pytest.mark.parametrize("name", ["nightly_eval", "posttraining"])
def test_secrets_come_by_reference_and_the_webhook_reaches_the_gate_alone(name: str) -> None:
    """And optional: a cluster without the Secrets runs all the same."""
    pods = argo_pods(argo_spec(load(COMPILED / f"{name}.argo.yaml")))
    held = {
        (key, given["name"]): given["valueFrom"]["secretKeyRef"]
        for key, each in pods.items()
        for given in each["container"]["env"]
        if "valueFrom" in given
    }
    assert all(reference["optional"] for reference in held.values())
    logins = {"MLFLOW_TRACKING_USERNAME": "username", "MLFLOW_TRACKING_PASSWORD": "password"}
    for key in pods:
        for variable, secret_key in logins.items():
            reference = held.pop((key, variable))
            assert (reference["name"], reference["key"]) == ("posttrain-mlflow", secret_key)
    webhook = {"name": "posttrain-webhook", "key": "url", "optional": True}
    assert held == {("gate", "POSTTRAIN_WEBHOOK"): webhook}
    kfp = kfp_pods(COMPILED / f"{name}.kfp.yaml")
    named = [
        (key, given["secretName"]) for key, (_, pod) in kfp.items() for given in pod["secretAsEnv"]
    ]
    assert [key for key, secret in named if secret == "posttrain-webhook"] == ["exec-gate"]


def test_results_are_remembered_by_digest_where_nothing_else_decides_them() -> None:
    """Compiled with an image named by digest, in a process of its own."""
    script = (
        "from pipelines import argo; from pipelines.posttraining import posttraining;"
        "print(argo.workflow_template(posttraining).to_yaml())"
    )
    images = {"POSTTRAIN_IMAGE": f"{PINNED}0", "POSTTRAIN_IMAGE_TRAIN": f"{PINNED}1"}
    made = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        cwd=ROOT,
        env=os.environ | images,
        stdout=subprocess.PIPE,
        text=True,
    )
    spec = yaml.safe_load(made.stdout)["spec"]
    pods = argo_pods(spec)
    assert {each["container"]["image"] for each in pods.values()} == set(images.values())
    remembered = {name: each["memoize"] for name, each in pods.items() if "memoize" in each}
    # Neither what reads files or a registry beside its inputs, nor what people wait for.
    assert remembered.keys() == {"sft", "rejected-sft", "reject", "rl"}
    for memoize in remembered.values():
        assert memoize["key"] == "{{inputs.parameters.memo}}"
        assert memoize["cache"] == {"configMap": {"name": "posttrain-memo"}}
    (dag,) = [each["dag"] for each in spec["templates"] if "dag" in each]
    for task in dag["tasks"]:
        given = {p["name"]: p["value"] for p in task.get("arguments", {}).get("parameters", [])}
        assert given.keys() == ({"memo"} if task["name"] in remembered else set())
        if not given:
            continue
        assert given["memo"].startswith("{{=sprig.sha256sum(toJson(['example/posttrain@sha256:0")
        for word in (*task["dependencies"], "recipe", "seed", "overrides", task["name"]):
            assert f"'{word}'" in given["memo"]
        assert "budget" not in given["memo"]


def test_a_tag_is_no_name_for_a_result() -> None:
    for path in ARGO:
        assert not any("memoize" in each for each in argo_pods(argo_spec(load(path))).values())


PREFER_SPOT = {
    "preferredDuringSchedulingIgnoredDuringExecution": [
        {
            "weight": 100,
            "preference": {
                "matchExpressions": [
                    {"key": "posttrain/capacity", "operator": "In", "values": ["spot"]}
                ]
            },
        }
    ]
}


def test_argo_places_by_the_parameters_of_the_pipeline() -> None:
    built = argo.workflow(
        posttraining,
        seed=3,
        train_accelerators="8",
        train_nodes={"pool": "h200"},
        train_affinity=PREFER_SPOT,
        train_memory="512Gi",
        tolerations=[{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    )
    spec = yaml.safe_load(built.to_yaml())["spec"]
    templates = {t["name"]: t for t in spec["templates"]}
    assert {"name": "seed", "value": "3"} in spec["arguments"]["parameters"]
    assert templates["rl"]["nodeSelector"] == {"pool": "h200"}
    asked = templates["rl"]["container"]["resources"]
    assert asked["limits"] == {"memory": "512Gi", "nvidia.com/gpu": "8"}
    assert asked["requests"] == {"cpu": "1", **asked["limits"]}
    (preferred,) = templates["rl"]["affinity"]["nodeAffinity"].values()
    assert preferred == PREFER_SPOT["preferredDuringSchedulingIgnoredDuringExecution"]
    assert templates["rl"]["tolerations"][0]["key"] == "gpu"
    assert templates["reject"]["tolerations"][0]["key"] == "gpu"
    assert "nvidia.com/gpu" not in templates["reject"]["container"]["resources"]["limits"]
    assert not {"nodeSelector", "tolerations", "affinity"} & templates["curate"].keys()


@pytest.mark.parametrize(
    "parameters",
    [
        {"train_affinity": {"preferred": []}},
        {"train_affinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"terms": []}}},
        {"tolerations": [{"key": "gpu", "opperator": "Exists"}]},
    ],
)
def test_a_mistyped_placement_is_refused_and_not_dropped(parameters: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        argo.workflow(posttraining, **parameters)


def test_the_schedule_of_argo_takes_parameters_too() -> None:
    built = argo.cron_workflow(nightly_eval, "0 1 * * *", "Europe/Berlin", base_model="org/model")
    spec = yaml.safe_load(built.to_yaml())["spec"]
    assert spec["timezone"] == "Europe/Berlin"
    parameters = spec["workflowSpec"]["arguments"]["parameters"]
    assert {"name": "base_model", "value": "org/model"} in parameters
