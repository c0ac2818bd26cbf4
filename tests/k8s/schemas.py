"""Validation of one object, unknown keys included, against the schema of its kind."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from tests.k8s.pods import SCHEMAS
from tests.k8s.policy import Object, Pod

KUBERNETES = "1.35"
"""The release that manifests are made for: the oldest with maintenance when they were written."""

CUSTOM = {"trainer.kubeflow.org": "trainer", "kueue.x-k8s.io": "kueue"}
ARGO = "argoproj.io"


def faults(thing: Object) -> list[str]:
    """What the schema of the object's kind does not allow; skips where a schema is absent."""
    group = thing["apiVersion"].partition("/")[0]
    if group in CUSTOM:
        return [error.message for error in custom(group, thing).iter_errors(thing)]
    if group == ARGO:
        return argo_faults(thing)
    try:
        kubernetes_validate.validate(thing, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{'.'.join(map(str, error.path))}: {error.message}"]
    return []


def pod_faults(pod: Pod) -> list[str]:
    """The same of a pod that a controller puts together."""
    metadata = {"name": "any", "labels": pod.labels}
    return faults({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod.spec})


def custom(group: str, thing: Object) -> Any:
    """The validator of a custom resource's kind and version."""
    definitions, version = crds(CUSTOM[group]), thing["apiVersion"].partition("/")[2]
    schema = definitions[thing["kind"], version]
    return jsonschema.Draft202012Validator(schema)


@cache
def crds(folder: str) -> dict[tuple[str, str], Any]:
    """(kind, version) -> closed JSON Schema, of the definitions in a folder of `SCHEMAS`."""
    if not (SCHEMAS / folder).is_dir():
        pytest.skip(f"no schemas at {SCHEMAS / folder}: set POSTTRAIN_SCHEMAS")
    found = {}
    for path in (SCHEMAS / folder).glob("*.yaml"):
        spec = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]
        for version in spec["versions"]:
            schema = closed(version["schema"]["openAPIV3Schema"])
            # The server checks metadata itself; definitions leave it empty.
            schema["properties"]["metadata"] = {"type": "object"}
            found[spec["names"]["kind"], version["name"]] = schema
    return found


def closed(schema: Object) -> Object:
    """A structural schema as JSON Schema that refuses what the server would prune."""
    out = dict(schema)
    if "properties" in schema:
        out["properties"] = {key: closed(inner) for key, inner in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            out[key] = closed(schema[key])
    kept = schema.get("x-kubernetes-preserve-unknown-fields")
    if schema.get("type") == "object" and not kept and "additionalProperties" not in schema:
        out["additionalProperties"] = False
    if schema.get("nullable") and "type" in schema:
        out["type"] = [schema["type"], "null"]
    return out


@cache
def argo_schema() -> Any:
    file = SCHEMAS / "argo/schema.json"
    if not file.is_file():
        pytest.skip(f"no Argo schema at {file}: set POSTTRAIN_SCHEMAS")
    return json.loads(file.read_text(encoding="utf-8"))


def argo_faults(thing: Object) -> list[str]:
    schema = argo_schema()
    definition = {"$ref": f"#/definitions/io.argoproj.workflow.v1alpha1.{thing['kind']}"}
    validator = jsonschema.Draft7Validator({"definitions": schema["definitions"], **definition})
    wrong = [error.message for error in validator.iter_errors(thing)]
    return wrong + list(unknown(thing, definition, schema["definitions"], thing["kind"]))


def unknown(value: Any, schema: Object, definitions: Object, at: str) -> Iterator[str]:
    """Keys that Argo's schema does not know but lets pass."""
    while "$ref" in schema:
        schema = definitions[schema["$ref"].removeprefix("#/definitions/")]
    if isinstance(value, list):
        for i, inner in enumerate(value):
            yield from unknown(inner, schema.get("items", {}), definitions, f"{at}[{i}]")
    elif isinstance(value, dict) and "properties" in schema:
        for key, inner in value.items():
            if key in schema["properties"]:
                yield from unknown(inner, schema["properties"][key], definitions, f"{at}.{key}")
            elif "additionalProperties" not in schema:
                yield f"{at}: {key} is not known"
