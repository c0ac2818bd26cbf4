"""Contamination: training rows that stand in a test."""

from dataclasses import KW_ONLY, dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeInt

from posttrain.curate.batch import Batch, Mask
from posttrain.curate.likeness import BANDS, PERMUTATIONS, Known, Signatures, bands, runs
from posttrain.curate.operators import Reasons, reasons
from posttrain.curate.suites import suites_of

OWN = "an evaluation prompt"


class Reference:
    """Prompts of a test, to find training prompts among them."""

    def __init__(self, threshold: float, run: int) -> None:
        self._run = run
        self._normal: set[bytes] = set()
        self._near = _Prompts(threshold)
        self._runs = Known(np.zeros(0, dtype=np.uint64))

    def add(self, prompts: Batch, loose: Mask) -> None:
        """Add prompts; those not `loose` are found only word for word."""
        self._normal.update(_bytes(prompts))
        prompts = prompts.keep(loose)
        self._near.add(prompts.signatures("prompt"))
        if self._run:
            found, _ = runs(prompts.words("prompt"), self._run)
            self._runs = Known(np.union1d(self._runs.hashes, found))

    def checks(self, batch: Batch, training: Mask, loose: Mask, of: str) -> list[tuple[str, Mask]]:
        """The ways in which a training prompt can be one of these, and which are."""
        same = np.array([each in self._normal for each in _bytes(batch)], dtype=bool)
        near = self._near.holds(batch.signatures("prompt"))
        return [
            (of, training & same),
            (f"like {of}", training & loose & near),
            (f"shares {self._run} words in a row with {of}", training & loose & self._in(batch)),
        ]

    def _in(self, batch: Batch) -> Mask:
        """Which rows share a run with one of the prompts."""
        found = np.zeros(len(batch), dtype=bool)
        if len(self._runs.hashes):
            words = batch.words("prompt")
            made, starts = runs(words, self._run)
            hit = starts[self._runs.holds(made)]
            found[np.searchsorted(words.ends, hit, side="right") - 1] = True
        return found


@dataclass
class Contamination:
    """Drop training rows whose prompt stands among the evaluation prompts, or in `suites`.

    It counts as the same word for word in its normal form, when it is `threshold` like one
    (Jaccard of shingles), or when they share a run of `run` words (0: not looked at; 13 in
    arXiv:2005.14165). In `exact_tasks` one word makes another problem, so that only the first
    counts. `suites` are names of benchmarks; their files are read in `data_folder`, or come from
    the hub. `all` takes every one whose items can be had, and the report says which could not.
    """

    _: KW_ONLY
    threshold: float = 0.6
    run: NonNegativeInt = 13
    exact_tasks: tuple[str, ...] = ("knights_knaves", "bugfix", "judging")
    suites: tuple[str, ...] = ()
    data_folder: str = ""

    def __post_init__(self) -> None:
        self._references = {OWN: Reference(self.threshold, self.run)}
        found, self.absent = suites_of(self.suites, self.data_folder) if self.suites else ({}, {})
        self.versions = {name: (len(each.prompts), each.version) for name, each in found.items()}
        for name, each in found.items():
            reference = Reference(self.threshold, self.run)
            reference.add(each.prompts, self._loose(each.prompts))
            self._references[of_suite(name)] = reference

    def learn(self, evaluation: Batch, /) -> None:
        self._references[OWN].add(evaluation, self._loose(evaluation))

    def __call__(self, batch: Batch, /) -> Reasons:
        training, loose = batch.kinds() != 0, self._loose(batch)
        checks = [
            check
            for of, reference in self._references.items()
            for check in reference.checks(batch, training, loose, of)
        ]
        return reasons(batch, *checks)

    def _loose(self, batch: Batch) -> Mask:
        exact = [task in self.exact_tasks for task in batch.values("task")]
        return ~np.array(exact, dtype=bool)


def of_suite(name: str) -> str:
    """What a reason calls the prompts of a suite."""
    return f"a prompt of {name}"


def _bytes(batch: Batch) -> list[bytes]:
    """The normal forms of the prompts, to stand in a set."""
    found: list[bytes] = batch.normal_forms("prompt").view("V16").ravel().tolist()
    return found


class _Prompts:
    """Signatures of prompts, by band, to find those like others."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._signatures: Signatures = np.zeros((0, PERMUTATIONS), dtype=np.int32)
        self._bands: list[Known] = []
        self._orders: list[NDArray[np.intp]] = []

    def add(self, signatures: Signatures) -> None:
        self._signatures = np.concatenate([self._signatures, signatures])
        keys = bands(self._signatures)
        self._bands = [Known(keys[:, band]) for band in range(BANDS)]
        self._orders = [np.argsort(keys[:, band], kind="stable") for band in range(BANDS)]

    def holds(self, signatures: Signatures) -> Mask:
        """Which are at least `threshold` like one that was added, as their signatures say."""
        found = np.zeros(len(signatures), dtype=bool)
        keys = bands(signatures)
        for band, (known, order) in enumerate(zip(self._bands, self._orders, strict=True)):
            rows = known.holds(keys[:, band])
            rows = rows[~found[rows]]
            first = np.searchsorted(known.hashes, keys[rows, band], side="left")
            count = np.searchsorted(known.hashes, keys[rows, band], side="right") - first
            place = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
            other = order[np.repeat(first, count) + place]
            row = np.repeat(rows, count)
            alike = (signatures[row] == self._signatures[other]).mean(axis=1) >= self._threshold
            found[row[alike]] = True
        return found
