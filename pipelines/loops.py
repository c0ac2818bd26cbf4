"""The tasks of a graph with those of its loops among them, as a DAG of Argo has them.

KFP makes a component of the body of a `ParallelFor`, with ports of its own. Here its tasks are
lifted out, their ports tied to what stands around the loop; `each` names the parameter that the
loop goes over.
"""

from collections.abc import Mapping
from typing import Any

Fields = dict[str, Any]


def flat(tasks: Mapping[str, Any], components: Mapping[str, Any]) -> dict[str, Fields]:
    """The tasks by name; one of a loop has `each`, and no loop is left."""
    found: dict[str, Fields] = {}
    collected: dict[tuple[str, str], Fields] = {}
    for name, task in tasks.items():
        if "parameterIterator" not in task:
            found[name] = dict(task)
            continue
        dag = components[task["componentRef"]["name"]]["dag"]
        found |= {inner: lifted(one, task) for inner, one in dag["tasks"].items()}
        for key, selected in dag["outputs"]["artifacts"].items():
            (one,) = selected["artifactSelectors"]
            source = {"producerTask": one["producerSubtask"]}
            collected[name, key] = source | {"outputArtifactKey": one["outputArtifactKey"]}
    for task in found.values():
        task["inputs"] = dict(task["inputs"], artifacts=tied(task, collected))
        made_by = {each["taskOutputArtifact"]["producerTask"] for each in artifacts(task).values()}
        task["dependentTasks"] = sorted(made_by)
    return dict(sorted(found.items()))


def artifacts(task: Mapping[str, Any]) -> Fields:
    """Input port -> where it comes from."""
    return dict(task["inputs"].get("artifacts", {}))


def tied(task: Mapping[str, Any], collected: Mapping[tuple[str, str], Fields]) -> Fields:
    """The inputs of a task, those that a loop collects tied to the task that makes them."""
    given = {port: each["taskOutputArtifact"] for port, each in artifacts(task).items()}
    return {
        port: {
            "taskOutputArtifact": collected.get(
                (each["producerTask"], each["outputArtifactKey"]), each
            )
        }
        for port, each in given.items()
    }


def lifted(task: Mapping[str, Any], loop: Mapping[str, Any]) -> Fields:
    """A task of a loop's body, its inputs those of the loop; `item` marks the one that varies."""
    around, iterator = loop["inputs"], loop["parameterIterator"]
    parameters = {
        name: {"item": True}
        if given.get("componentInputParameter") == iterator["itemInput"]
        else around["parameters"][given["componentInputParameter"]]
        for name, given in task["inputs"]["parameters"].items()
    }
    inputs = {
        port: around["artifacts"][given["componentInputArtifact"]]
        for port, given in artifacts(task).items()
    }
    items = around["parameters"][iterator["items"]["inputParameter"]]
    return {
        **task,
        "inputs": {"parameters": parameters, "artifacts": inputs},
        "each": items["componentInputParameter"],
    }


def varying(task: Mapping[str, Any]) -> list[str]:
    """The parameters of a task in a loop that are the loop's item."""
    return [name for name, given in task["inputs"]["parameters"].items() if "item" in given]
