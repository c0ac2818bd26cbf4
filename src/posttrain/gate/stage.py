"""challenger and champion scores, the challenger's policy -> verdict.

Compares the policy with the registry's champion (with `champion` while there is none), item by
item, and on a pass moves the `champion` alias to it. Left out on purpose: retries and waiting
for a registry; a verdict stands without it, and the next run of the gate promotes.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from posttrain.artifacts import POLICY, SCORES, VERDICT, In, Out, read_manifest, write_json
from posttrain.config import Field, Report, StageConfig
from posttrain.exposure import Standing
from posttrain.gate.comparison import (
    Answered,
    Comparison,
    Strictness,
    compare,
    obstacles,
    read_scores,
)
from posttrain.gate.contamination import standings, unchecked
from posttrain.gate.promotion import Entry, Opponent, find_opponent, opened, settle
from posttrain.gate.verdict import Outcome, Rule, Verdict, decide, markdown
from posttrain.gate.webhook import tell
from posttrain.journal import Journal
from posttrain.registry import CHAMPION, Registry, RegistryError

READS_EXPOSURE = True
VERDICT_FILE = "verdict.json"
TRIES = 3
"""How often a policy is judged again because the champion changed meanwhile."""


class GateConfig(StageConfig):
    """How much evidence a promotion takes."""

    primary: list[str] = Field(["arithmetic"], min_length=1, description="suites that decide")
    suites: list[str] = Field([], description="suites to compare; empty: all that either side has")
    rule: Rule = Field("better", description="`better`, or `non_inferior` by the margin")
    alpha: float = Field(0.05, gt=0, lt=1, description="family-wise error over all suites")
    looks: int = Field(
        1, ge=1, description="nights that share alpha, as far as promotions go: 30 for a month"
    )
    margin: float = Field(0.02, ge=0, le=1, description="loss that `non_inferior` tolerates")
    floors: dict[str, float] = Field({}, description="suite: least score of the challenger")
    min_items: int = Field(100, ge=2, description="shared prompts below which a suite says nothing")
    resamples: int = Field(10_000, ge=100, description="random sign flips of each test, at least")
    model_name: str = Field("posttrain-policy", min_length=1, description="registered model")
    registry_uri: str = Field("sqlite:///runs/mlflow.db", description="MLflow; empty: no registry")
    upload: bool = Field(True, description="copy the policy into the registry's artifact store")
    contamination: Literal["block", "tell"] = Field(
        "block",
        description="`block`: no pass by a suite that training data were not checked against",
    )
    webhook_env: str = Field(
        "",
        pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$",
        description="environment variable with the address that is told the verdict; empty: none",
    )


class GateReport(Report):
    """The verdict in short; `suites` holds difference, interval and adjusted p-value."""

    verdict: Outcome
    passed: bool
    promoted: bool
    promotion: str
    reasons: list[str]
    baseline: str
    suites: dict[str, dict[str, float]]


def run(
    config: GateConfig,
    *,
    challenger: Annotated[Path, In(SCORES)],
    champion: Annotated[Path, In(SCORES)],
    policy: Annotated[Path, In(POLICY)],
    verdict: Annotated[Path, Out(VERDICT)],
    journal: Journal,
) -> GateReport:
    digest, scores = read_manifest(policy).digest, read_manifest(challenger).digest
    registry = opened(config.registry_uri, config.model_name)
    ours, stands = read_scores(challenger), standings(challenger, policy)
    entry = Entry(policy, scores, ours.evidence, config.upload)
    for _ in range(TRIES):
        opponent, registry = find_opponent(registry, champion, digest)
        comparisons, outcome, reasons = judged(config, ours, opponent, stands)
        settled = settle(registry, outcome, entry, opponent, configured=bool(config.registry_uri))
        if settled.registry != "moved":
            break
        print("gate: the champion changed meanwhile; judging again", file=sys.stderr)
    found = Verdict(
        verdict=outcome,
        reasons=reasons,
        promoted=outcome == "pass" and settled.champion == digest,
        promotion=settled.promotion,
        rule=config.rule,
        alpha=config.alpha,
        looks=config.looks,
        margin=config.margin,
        primary=config.primary,
        policy=digest,
        scores=scores,
        baseline=opponent.baseline,
        champion=settled.champion,
        registry=settled.registry,
        suites=comparisons,
        contamination=stands,
    )
    write_json(verdict / VERDICT_FILE, found.model_dump(mode="json"))
    (verdict / "verdict.md").write_text(markdown(found), encoding="utf-8")
    return report_of(found)


def judged(
    config: GateConfig, ours: Answered, opponent: Opponent, stands: Mapping[str, Standing]
) -> tuple[list[Comparison], Outcome, list[str]]:
    """Compare suite by suite, and decide."""
    theirs = opponent.evidence
    decisive = sorted({*config.primary, *config.floors})
    names = sorted({*(config.suites or {*ours.evidence.scores, *theirs.scores}), *decisive})
    hindered = {name: obstacles(name, ours, theirs, config.min_items) for name in names}
    strictness = Strictness(config.alpha, config.looks, config.margin, config.resamples)
    comparable = [name for name in names if not hindered[name]]
    comparisons = compare(ours, theirs, comparable, strictness, config.seed)
    found = [f"{name}: {reason}" for name, reasons in hindered.items() for reason in reasons]
    if config.contamination == "block":
        found += unchecked(decisive, stands)
    outcome, reasons = decide(
        comparisons,
        [*opponent.objections, *found],
        primary=config.primary,
        rule=config.rule,
        strictness=strictness,
        floors=config.floors,
    )
    return comparisons, outcome, reasons


def report_of(verdict: Verdict) -> GateReport:
    """The verdict as numbers for metrics and pages."""
    return GateReport(
        verdict=verdict.verdict,
        passed=verdict.verdict == "pass",
        promoted=verdict.promoted,
        promotion=verdict.promotion,
        reasons=verdict.reasons,
        baseline=verdict.baseline.kind,
        suites={c.suite: c.model_dump(exclude={"suite"}) for c in verdict.suites},
    )


def still_holds(outputs: Mapping[str, Path], config: GateConfig) -> str | None:
    """Why a stored verdict no longer holds: the registry has moved on since. Else None."""
    if not config.registry_uri:
        return None
    text = (outputs["verdict"] / VERDICT_FILE).read_bytes()
    verdict = Verdict.model_validate_json(text)
    try:
        holder = Registry(config.registry_uri, config.model_name).holder(CHAMPION)
    except RegistryError:
        return None
    if verdict.registry == "unreachable":
        return "the registry can be reached again"
    if verdict.registry == "moved":
        return "another policy became champion while this one was judged"
    now = holder.policy if holder else None
    if now == verdict.champion:
        return None
    return f"the champion is {_short(now)}, and was {_short(verdict.champion)} after this verdict"


def announce(
    outputs: Mapping[str, Path], config: GateConfig, environment: Mapping[str, str]
) -> str:
    """Tell the webhook that the environment names; return what to say of it."""
    if not config.webhook_env:
        return ""
    found = Verdict.model_validate_json((outputs["verdict"] / VERDICT_FILE).read_bytes())
    url = environment.get(config.webhook_env)
    return tell(found, config.model_name, config.registry_uri, config.webhook_env, url)


def _short(digest: str | None) -> str:
    return digest[:12] if digest else "nobody"
