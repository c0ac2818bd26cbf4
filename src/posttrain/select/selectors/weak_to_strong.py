"""Selective weak-to-strong (arXiv:2511.14166): a weak label only where the policy knows no better.

The policy is the strong model. Shapes: N routed rows, G rows with gold answers, H hidden width,
C distinct weak answers.
"""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from posttrain.errors import DataError, Fault
from posttrain.records import Prompt, Record
from posttrain.select.measures import Measures
from posttrain.select.rows import all_of
from posttrain.select.selectors.k_center import unit

Array = NDArray[np.float64]
Share = Annotated[float, Field(gt=0, lt=1)]

ROUNDS, RATE, RIDGE = 500, 1.0, 1e-3
"""Of the classifier's fit by gradient steps (assumed)."""


def weak_to_strong(
    rows: Iterable[Record],
    rng: random.Random,
    measures: Measures,
    /,
    *,
    gold: tuple[str, ...],
    threshold: Share = 0.5,
    neighbours: PositiveInt = 10,
    smoothing: Share = 0.5,
) -> Iterable[Record]:
    """Rows with weak labels for answers, with the policy's own where it likely knows.

    P(IK) = sigmoid(w.h + b), h the last hidden state at the end of the prompt, fitted by binary
    cross-entropy to the pass rates of the rows of the tasks `gold`, whose answers are true (the
    paper's number of rollouts is unknown, 10 assumed). The others get the policy's majority where
    P(IK) >= `threshold`, else the weak label smoothed over the `neighbours` nearest prompts:
    F = (1-a)(I-aS)^-1 Y, a = `smoothing`, S = D^-1/2 A D^-1/2, A the positive cosines. The closed
    form and all constants are assumed.
    """
    prompts = all_of(rows, Prompt)
    rates = measures.pass_rates(prompts)
    states_NH = unit(measures.hidden(prompts))
    sure = np.array([row.task in gold for row in prompts], dtype=bool)
    if not prompts:
        return []
    if not sure.any():
        raise DataError(no_gold(gold))
    known_N = p_ik(states_NH[sure], np.asarray(rates)[sure], states_NH[~sure])
    weak = [row for row, one in zip(prompts, sure, strict=True) if not one]
    refined = smoothed_labels([row.answer for row in weak], states_NH[~sure], neighbours, smoothing)
    return route(measures, weak, known_N >= threshold, known_N, refined)


def no_gold(gold: tuple[str, ...]) -> Fault:
    """What to say where no answer is known to be true."""
    why, mend = f"no row has a task of {', '.join(gold)}", "name the tasks whose answers are true"
    return Fault("no gold answers", "select.selectors.weak_to_strong", why, mend)


def route(
    measures: Measures,
    rows: Sequence[Prompt],
    knows_N: NDArray[np.bool_],
    known_N: Array,
    refined: Sequence[str],
) -> list[Record]:
    """Each row with the policy's majority where it `knows`, else the refined label.

    The source of a row says which: it ends in `/self` or `/weak`.
    """
    found: list[Record] = []
    own: list[float] = []
    for row, group, knows, label in zip(rows, measures.groups(rows), knows_N, refined, strict=True):
        votes = Counter(sample.prediction for sample in group if sample.prediction is not None)
        answer = votes.most_common(1)[0][0] if votes and knows else label
        own.append(float(bool(votes) and bool(knows)))
        mark = "self" if own[-1] else "weak"
        found.append(row.model_copy(update={"answer": answer, "source": f"{row.source}/{mark}"}))
    measures.note("p_ik", rows, [float(known) for known in known_N])
    measures.note("self_label", rows, own)
    return found


def smoothed_labels(
    labels: Sequence[str], states_NH: NDArray[np.float32], neighbours: int, smoothing: float
) -> list[str]:
    """Each row's weak label after smoothing over its neighbours."""
    classes = sorted(set(labels))
    if not classes:
        return []
    labels_NC = np.array([[float(label == one) for one in classes] for label in labels])
    smooth_NC = smoothed(nearest(states_NH, neighbours), labels_NC, smoothing)
    return [classes[int(at)] for at in smooth_NC.argmax(axis=1)]


def p_ik(states_GH: NDArray[np.float32], rates_G: Array, asked_NH: NDArray[np.float32]) -> Array:
    """The chance [N] that the policy knows, by logistic regression on standardised states."""
    mean_H, scale_H = states_GH.mean(0), states_GH.std(0) + 1e-6
    known_GH = np.asarray((states_GH - mean_H) / scale_H, dtype=np.float64)
    weights_H, bias = np.zeros(known_GH.shape[1]), 0.0
    step = RATE / max(1.0, known_GH.shape[1] ** 0.5)
    for _ in range(ROUNDS):
        off_G = 1 / (1 + np.exp(-(known_GH @ weights_H + bias))) - rates_G
        weights_H -= step * (known_GH.T @ off_G / len(off_G) + RIDGE * weights_H)
        bias -= step * float(off_G.mean())
    logits_N = ((asked_NH - mean_H) / scale_H) @ weights_H + bias
    return np.asarray(1 / (1 + np.exp(-np.clip(logits_N, -60, 60))))


def nearest(states_NH: NDArray[np.float32], neighbours: int) -> Array:
    """A symmetric graph [N, N] of positive cosines to the nearest rows; no row is its own."""
    cosine_NN = np.maximum(np.asarray(states_NH @ states_NH.T, dtype=np.float64), 0)
    np.fill_diagonal(cosine_NN, 0)
    places_NK = np.argsort(-cosine_NN, axis=1, kind="stable")[:, :neighbours]
    kept_NN = np.zeros_like(cosine_NN)
    np.put_along_axis(kept_NN, places_NK, np.take_along_axis(cosine_NN, places_NK, 1), 1)
    return np.maximum(kept_NN, kept_NN.T)


def smoothed(graph_NN: Array, labels_NC: Array, smoothing: float) -> Array:
    """F = (1-a)(I-aS)^-1 Y [N, C]; a row without neighbours keeps its label."""
    degree_N = graph_NN.sum(1)
    scale_N = np.where(degree_N > 0, 1 / np.sqrt(np.maximum(degree_N, 1e-12)), 0.0)
    spread_NN = scale_N[:, None] * graph_NN * scale_N
    system_NN = np.eye(len(graph_NN)) - smoothing * spread_NN
    return np.asarray((1 - smoothing) * np.linalg.solve(system_NN, labels_NC))
