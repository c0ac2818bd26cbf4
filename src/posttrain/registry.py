"""The model registry: which policy is champion, which was the last good one, what they scored.

A version carries the digests of its policy and of its scores as tags, its scores per item as
an artifact (the next challenger is paired with them), and the version it replaced. Aliases:
`champion`, `last_good` (the champion before), `challenger` (judged, not promoted).
"""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from posttrain.artifacts import read_manifest
from posttrain.errors import ConfigError, Fault, TransientError
from posttrain.tracking import QUIET

CHAMPION = "champion"
LAST_GOOD = "last_good"
CHALLENGER = "challenger"
EXPERIMENT = "posttrain-registry"
ITEM_SCORES = "item_scores.json"
NONE = "none"

ItemScores = dict[str, dict[str, float]]
"""Suite -> item id -> mean correctness over the item's samples."""


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
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError) as error:
        cause = str(error).split("\n")[0][:200]
        raise RegistryError(
            Fault("registry not reachable", uri, cause, "check the server, then run the gate again")
        ) from error


class Registry:
    """One registered model at one MLflow URI."""

    def __init__(self, uri: str, model: str) -> None:
        quiet = {**QUIET, "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false"}
        for name, value in quiet.items():
            os.environ.setdefault(name, value)
        self.uri, self.model = uri, model
        with reachable(uri):
            from mlflow import MlflowClient

            if uri.startswith("sqlite:///"):
                _folder_of(uri).mkdir(parents=True, exist_ok=True)
            self._client: Any = MlflowClient(tracking_uri=uri, registry_uri=uri)

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
            found = self._client.search_model_versions(f"name='{self.model}'")
            versions = [_read(each) for each in found]
        return next((each for each in versions if each.policy == policy), None)

    def item_scores(self, version: Version) -> ItemScores:
        """The scores per item that were registered with a version."""
        with reachable(self.uri), tempfile.TemporaryDirectory() as folder:
            path = self._client.download_artifacts(version.run, ITEM_SCORES, folder)
            found: ItemScores = json.loads(Path(path).read_text(encoding="utf-8"))
        return found

    def register(
        self, policy: Path, scores: str, item_scores: ItemScores, *, upload: bool
    ) -> Version:
        """Make a version of a policy folder, or renew the scores of the one it has.

        `upload` copies the policy into the artifact store; otherwise the version names the place
        where the folder lies, which an MLflow server refuses.
        """
        manifest = read_manifest(policy)
        found = self.version_of(manifest.digest)
        with reachable(self.uri):
            if found:
                self._client.log_dict(found.run, item_scores, ITEM_SCORES)
                self._tag(found.number, {"scores": scores})
                return self._version(found.number)
            self._ensure_model()
            run = self._client.create_run(
                self._experiment(), run_name=f"{self.model} {manifest.digest[:12]}"
            ).info
            self._client.log_dict(run.run_id, item_scores, ITEM_SCORES)
            if upload:
                self._client.log_artifacts(run.run_id, str(policy), "policy")
            self._client.set_terminated(run.run_id)
            source = f"{run.artifact_uri}/policy" if upload else policy.resolve().as_uri()
            tags = {"policy": manifest.digest, "scores": scores, "key": manifest.key}
            made = self._client.create_model_version(self.model, source, run.run_id, tags=tags)
            return _read(made)

    def promote(self, version: Version) -> None:
        """Make a version champion; the champion before becomes `last_good`.

        The champion's alias moves last, so that a kill in between is mended by the next call.
        """
        with reachable(self.uri):
            before = self._aliases().get(CHAMPION)
            if str(before) == version.number:
                return
            self._tag(version.number, {"replaced": NONE if before is None else str(before)})
            if before is not None:
                self._client.set_registered_model_alias(self.model, LAST_GOOD, str(before))
            self._client.set_registered_model_alias(self.model, CHAMPION, version.number)
            if str(self._aliases().get(CHALLENGER)) == version.number:
                self._client.delete_registered_model_alias(self.model, CHALLENGER)

    def challenge(self, version: Version) -> None:
        """Point `challenger` to a version that was judged but not promoted."""
        with reachable(self.uri):
            self._client.set_registered_model_alias(self.model, CHALLENGER, version.number)

    def rollback(self) -> tuple[Version, Version]:
        """Give the champion's place back to `last_good`; return who left and who came.

        The one that left is tagged `rolled_back`, so that no gate promotes it again.
        """
        left, came = self.holder(CHAMPION), self.holder(LAST_GOOD)
        if left is None or came is None:
            raise ConfigError(
                Fault(
                    "nothing to roll back to",
                    f"{self.model} in {self.uri}",
                    "there is no `last_good` alias: at most one model was ever promoted",
                    "promote another model through the gate",
                )
            )
        with reachable(self.uri):
            self._tag(left.number, {"rolled_back": "true"})
            self._client.set_registered_model_alias(self.model, CHAMPION, came.number)
            if came.replaced == NONE:
                self._client.delete_registered_model_alias(self.model, LAST_GOOD)
            else:
                self._client.set_registered_model_alias(self.model, LAST_GOOD, came.replaced)
        return left, came

    def _aliases(self) -> Mapping[str, Any]:
        from mlflow.exceptions import MlflowException

        try:
            aliases: Mapping[str, Any] = self._client.get_registered_model(self.model).aliases
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return {}
            raise
        return aliases

    def _version(self, number: str) -> Version:
        return _read(self._client.get_model_version(self.model, number))

    def _tag(self, number: str, tags: Mapping[str, str]) -> None:
        for name, value in tags.items():
            self._client.set_model_version_tag(self.model, number, name, value)

    def _ensure_model(self) -> None:
        from mlflow.exceptions import MlflowException

        try:
            self._client.create_registered_model(self.model)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise

    def _experiment(self) -> str:
        found = self._client.get_experiment_by_name(EXPERIMENT)
        if found:
            return str(found.experiment_id)
        beside = self.uri.startswith("sqlite:///")
        place = (_folder_of(self.uri) / "registry").resolve().as_uri() if beside else None
        return str(self._client.create_experiment(EXPERIMENT, artifact_location=place))


def _folder_of(uri: str) -> Path:
    return Path(uri.removeprefix("sqlite:///")).parent


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
