"""Every overlay renders, and all that it renders is valid to the last key."""

import copy
import shutil
from typing import Any

import pytest
import yaml
from tests.k8s import pods, schemas

pytestmark = pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl on this machine")


@pytest.mark.parametrize("name", pods.OVERLAYS)
def test_an_overlay_is_valid(name: str) -> None:
    wrong = {
        f"{thing['kind']} {thing['metadata']['name']}": found
        for thing in pods.overlay(name)
        if (found := schemas.faults(thing))
    }
    assert wrong == {}


def test_no_overlay_is_forgotten() -> None:
    folders = {path.parent.name for path in pods.K8S.glob("overlays/*/kustomization.yaml")}
    assert folders == set(pods.OVERLAYS)


def test_every_file_is_listed() -> None:
    """A manifest that no kustomization names is applied by nobody."""
    for path in pods.K8S.rglob("kustomization.yaml"):
        text = path.read_text(encoding="utf-8")
        for beside in path.parent.iterdir():
            if beside.is_file() and beside != path:
                assert beside.name in text, f"{beside} is not in {path}"


def test_the_controller_settings_of_argo_are_valid() -> None:
    settings = yaml.safe_load((pods.K8S / "argo/controller.yaml").read_text(encoding="utf-8"))
    assert schemas.faults(settings) == []


@pytest.mark.parametrize("pod", pods.graph_pods(), ids=lambda pod: pod.where)
def test_the_pods_of_graphs_are_valid(pod: Any) -> None:
    assert schemas.pod_faults(pod) == []


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("Deployment", ("spec", "template", "spec")),
        ("NetworkPolicy", ("spec",)),
        ("ClusterQueue", ("spec", "flavorFungibility")),
        ("ClusterQueue", ("spec", "resourceGroups", 0, "flavors", 0)),
        ("LocalQueue", ("spec",)),
    ],
)
def test_an_unknown_key_is_refused(kind: str, path: tuple[Any, ...]) -> None:
    thing = copy.deepcopy(next(t for t in pods.overlay("spot") if t["kind"] == kind))
    assert schemas.faults(thing) == []
    place = thing
    for key in path:
        place = place[key]
    place["nmae"] = "x"
    assert schemas.faults(thing)


def test_an_unknown_key_of_argo_is_refused() -> None:
    path = pods.COMPILED / "nightly_eval.argo.yaml"
    manifest = yaml.safe_load(path.read_text(encoding="utf-8"))
    manifest["spec"]["workflowSpec"]["templates"][0]["nmae"] = "x"
    assert any("nmae" in fault for fault in schemas.faults(manifest))
