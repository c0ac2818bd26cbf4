"""The model registry: which policy is champion, which was the last good one, what they scored.

A version carries the digests of its policy and of its scores as tags, its scores per item as
an artifact (the next challenger is paired with them), and the version it replaced. Aliases:
`champion`, `last_good` (the champion before), `challenger` (judged, not promoted). Whoever changes
them holds the model's lock.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from posttrain.artifacts import read_manifest
from posttrain.errors import ConfigError, Fault, TransientError
from posttrain.lease import held, made
from posttrain.mlflow_client import connect, experiment_id, explained

CHAMPION = "champion"
LAST_GOOD = "last_good"
CHALLENGER = "challenger"
EXPERIMENT = "posttrain-registry"
ITEM_SCORES = "item_scores.json"
NONE = "none"

ItemScores = dict[str, dict[str, float]]
"""Suite -> item id -> mean correctness over the item's samples."""


class Evidence(BaseModel):
    """What a policy scored, and on which version of each suite (a digest of what was asked)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scores: ItemScores
    versions: dict[str, str] = {}


class RegistryError(TransientError):
    """The registry cannot be reached, or refused; a verdict stands without it."""


class Version(NamedTuple):
    """A registered policy. `policy` and `scores` are digests; `replaced` is the number of the
    champion it took over from, or `none`."""

    number: str
    policy: str
    scores: str
    replaced: str
    rolled_back: bool
    run: str


@contextmanager
def reachable(uri: str) -> Iterator[None]:
    """Turn whatever MLflow and its stores raise into a `RegistryError`."""
    try:
        yield
    except Exception as error:
        if (told := explained(uri, error)) is None:
            raise
        raise RegistryError(replace(told.faults[0], what="registry not reachable")) from error


class Registry:
    """One registered model at one MLflow URI; `client` is MLflow's."""

    def __init__(self, uri: str, model: str) -> None:
        self.uri, self.model = uri, model
        with reachable(uri):
            self.client = connect(uri)

    def holder(self, alias: str) -> Version | None:
        """The version that an alias points to."""
        with reachable(self.uri):
            number = self._aliases().get(alias)
            return None if number is None else self._version(str(number))

    def version(self, number: str) -> Version:
        """A version by its number."""
        with reachable(self.uri):
            return self._version(number)

    def version_of(self, policy: str) -> Version | None:
        """The version of a policy digest, if it is registered."""
        with reachable(self.uri):
            found = self.client.search_model_versions(f"name='{self.model}'")
            versions = [_read(each) for each in found]
        return next((each for each in versions if each.policy == policy), None)

    def evidence(self, version: Version) -> Evidence:
        """What was registered with a version."""
        with reachable(self.uri), tempfile.TemporaryDirectory() as folder:
            path = self.client.download_artifacts(version.run, ITEM_SCORES, folder)
            found: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
        # Before versions of suites were kept, the file held the scores alone.
        return Evidence.model_validate(found if "versions" in found else {"scores": found})

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the model's lock: meanwhile nobody else registers, promotes or rolls back."""
        with reachable(self.uri), held(self.client, f"{self.model}.lock"):
            yield

    def register(self, policy: Path, scores: str, evidence: Evidence, *, upload: bool) -> Version:
        """Make a version of a policy folder, or renew the scores of the one it has.

        `upload` copies the policy into the artifact store; otherwise the version names the place
        where the folder lies, which an MLflow server refuses. Copying may take long, so that it
        is done before the lock is held.
        """
        manifest = read_manifest(policy)
        place = None if upload else policy.resolve().as_uri()
        run = None
        if self.version_of(manifest.digest) is None:
            run = self._stored(manifest.digest, policy if upload else None, evidence)
        with self.alone():
            found = self.version_of(manifest.digest)
            if found is None and run:
                source = place or f"{run.artifact_uri}/policy"
                tags = {"policy": manifest.digest, "scores": scores, "key": manifest.key}
                found = _read(
                    self.client.create_model_version(self.model, source, run.run_id, tags=tags)
                )
            elif found is None:
                raise RegistryError(Fault("version gone", self.uri, "deleted", "run it again"))
            elif run:
                self.client.delete_run(run.run_id)
            if found.scores != scores:
                self.client.log_dict(found.run, evidence.model_dump(), ITEM_SCORES)
                self._tag(found.number, {"scores": scores})
            return self._version(found.number)

    def _stored(self, digest: str, policy: Path | None, evidence: Evidence) -> Any:
        """The run that holds a policy's evidence and, if it is to be copied, the policy."""
        with reachable(self.uri):
            made(self.client, self.model)
            name = f"{self.model} {digest[:12]}"
            run = self.client.create_run(self.experiment(), run_name=name).info
            self.client.log_dict(run.run_id, evidence.model_dump(), ITEM_SCORES)
            if policy:
                self.client.log_artifacts(run.run_id, str(policy), "policy")
            self.client.set_terminated(run.run_id)
            return run

    def promote(self, version: Version) -> None:
        """Make a version champion; the champion before becomes `last_good`.

        The champion's alias moves in one step, and what the version replaced is known before: a
        kill anywhere leaves one champion and the way back, and the next call does the rest.
        """
        with reachable(self.uri):
            before = self._aliases().get(CHAMPION)
            if str(before) != version.number:
                self._tag(version.number, {"replaced": NONE if before is None else str(before)})
                if before is not None:
                    self.client.set_registered_model_alias(self.model, LAST_GOOD, str(before))
                self.client.set_registered_model_alias(self.model, CHAMPION, version.number)
            if str(self._aliases().get(CHALLENGER)) == version.number:
                self.client.delete_registered_model_alias(self.model, CHALLENGER)

    def challenge(self, version: Version) -> None:
        """Point `challenger` to a version that was judged but not promoted."""
        with reachable(self.uri):
            self.client.set_registered_model_alias(self.model, CHALLENGER, version.number)

    def rollback(self) -> tuple[Version, Version]:
        """Give the champion's place back to the one it replaced; return who left and who came.

        The one that left is tagged `rolled_back`, so that no gate promotes it again.
        """
        with self.alone():
            left = self.holder(CHAMPION)
            if left is None or left.replaced == NONE:
                raise ConfigError(
                    Fault(
                        "nothing to roll back to",
                        f"{self.model} in {self.uri}",
                        "the champion replaced nobody" if left else "there is no champion",
                        "promote another model through the gate",
                    )
                )
            came = self.version(left.replaced)
            with reachable(self.uri):
                self._tag(left.number, {"rolled_back": "true"})
                self.client.set_registered_model_alias(self.model, CHAMPION, came.number)
                if came.replaced == NONE:
                    self.client.delete_registered_model_alias(self.model, LAST_GOOD)
                else:
                    self.client.set_registered_model_alias(self.model, LAST_GOOD, came.replaced)
        return left, came

    def _aliases(self) -> Mapping[str, Any]:
        from mlflow.exceptions import MlflowException

        try:
            aliases: Mapping[str, Any] = self.client.get_registered_model(self.model).aliases
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return {}
            raise
        return aliases

    def _version(self, number: str) -> Version:
        return _read(self.client.get_model_version(self.model, number))

    def _tag(self, number: str, tags: Mapping[str, str]) -> None:
        for name, value in tags.items():
            self.client.set_model_version_tag(self.model, number, name, value)

    def experiment(self) -> str:
        """Where runs of the registry stand: policies that were registered, and nights."""
        return experiment_id(self.client, self.uri, EXPERIMENT, "registry")


def _read(found: Any) -> Version:
    tags = found.tags
    return Version(
        number=str(found.version),
        policy=tags.get("policy", ""),
        scores=tags.get("scores", ""),
        replaced=tags.get("replaced", NONE),
        rolled_back=tags.get("rolled_back") == "true",
        run=found.run_id or "",
    )


def rollback(model: str, uri: str) -> str:
    """Move `champion` back to `last_good`; return a sentence that says so."""
    left, came = Registry(uri, model).rollback()
    return (
        f"{model}: champion is version {came.number} again (policy {came.policy[:12]});"
        f" version {left.number} was rolled back and no gate promotes it"
    )
