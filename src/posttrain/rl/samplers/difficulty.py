"""Success rates of prompts, predicted by attention over prompts whose rates are known (DOTS,
arXiv:2506.05316).

Shapes: P prompts, Q queries, R references, H width of the embeddings, A width of the adapter.
Everything is float32 on CPU and random only through the generator that is passed.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

HELD_OUT = 5
"""Each fifth reference is kept from the fit and says how good it is."""

EDGE = 1e-4
"""Rates are kept this far from 0 and 1 before their logit is taken."""


class Fitting(NamedTuple):
    """Width of the adapter's layers; passes over the references, each one step of Adam."""

    width: int
    epochs: int
    learning_rate: float


class Predictor(nn.Module):
    """An adapter (three layers, GELU and LayerNorm) over frozen embeddings, and a calibration.

    The calibration reads the mean and the deviation of the references' rates and begins neutral.
    """

    def __init__(self, inputs: int, width: int, rng: torch.Generator) -> None:
        super().__init__()
        self.adapter = nn.Sequential(
            linear(inputs, width, rng),
            nn.LayerNorm(width),
            nn.GELU(),
            linear(width, width, rng),
            nn.LayerNorm(width),
            nn.GELU(),
            linear(width, width, rng),
            nn.LayerNorm(width),
        )
        last = linear(16, 2, rng)
        nn.init.zeros_(last.weight)
        self.calibration = nn.Sequential(linear(2, 16, rng), nn.GELU(), last)

    def forward(
        self, queries_QH: Tensor, keys_RH: Tensor, rates_R: Tensor, *, among_themselves: bool
    ) -> Tensor:
        """Rates of the queries [Q]; `among_themselves`: they are the references, and none may
        look at itself."""
        queries_QA, keys_RA = self.adapter(queries_QH), self.adapter(keys_RH)
        rates_Q = attended(queries_QA, keys_RA, rates_R, among_themselves=among_themselves)
        facts = torch.stack([rates_R.mean(), rates_R.std(correction=0)])
        raw_temperature, raw_bias = self.calibration(facts).unbind()
        # softplus(0.5413) is 1.
        temperature = functional.softplus(raw_temperature + 0.5413).clamp(0.01, 10.0)
        return calibrated(rates_Q, temperature, raw_bias.tanh())


def linear(inputs: int, outputs: int, rng: torch.Generator) -> nn.Linear:
    """A layer whose start comes from the generator instead of from the global state."""
    layer = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
    nn.init.normal_(layer.weight, std=inputs**-0.5, generator=rng)
    nn.init.zeros_(layer.bias)
    return layer


def attended(
    queries_QA: Tensor, keys_RA: Tensor, rates_R: Tensor, *, among_themselves: bool = False
) -> Tensor:
    """The references' rates averaged by softmax(q k / sqrt(A)) [Q]."""
    scores_QR: Tensor = queries_QA @ keys_RA.T / keys_RA.shape[1] ** 0.5
    if among_themselves:
        scores_QR = scores_QR.masked_fill(torch.eye(len(keys_RA), dtype=torch.bool), -torch.inf)
    return scores_QR.softmax(dim=1) @ rates_R


def calibrated(rates_Q: Tensor, temperature: Tensor, bias: Tensor) -> Tensor:
    """sigmoid(logit(rate) / temperature + bias)."""
    return (rates_Q.clamp(EDGE, 1 - EDGE).logit() / temperature + bias).sigmoid()


def fit(keys_RH: Tensor, rates_R: Tensor, fitting: Fitting, rng: torch.Generator) -> Predictor:
    """Fit a new predictor: each reference's rate from the others', by cross-entropy."""
    model = Predictor(keys_RH.shape[1], fitting.width, rng)
    optimizer = torch.optim.Adam(model.parameters(), lr=fitting.learning_rate)
    for _ in range(fitting.epochs):
        guess_R = model(keys_RH, keys_RH, rates_R, among_themselves=True)
        optimizer.zero_grad()
        torch.autograd.backward(functional.binary_cross_entropy(guess_R, rates_R))
        optimizer.step()
    return model


def predict(
    vectors_PH: Tensor,
    keys_RH: Tensor,
    rates_R: Tensor,
    fitting: Fitting,
    rng: torch.Generator,
) -> tuple[Tensor, dict[str, float]]:
    """The rate of every prompt [P]; correlation and mean error on references kept from the fit."""
    held_R = torch.arange(len(rates_R)) % HELD_OUT == HELD_OUT - 1
    keys_FH, rates_F = keys_RH[~held_R], rates_R[~held_R]
    with torch.enable_grad():
        model = fit(keys_FH, rates_F, fitting, rng)
    with torch.no_grad():
        guess_H = model(keys_RH[held_R], keys_FH, rates_F, among_themselves=False)
        rates_P = model(vectors_PH, keys_RH, rates_R, among_themselves=False)
    return rates_P, {
        "dots/correlation": correlation(guess_H, rates_R[held_R]),
        "dots/error": float((guess_H - rates_R[held_R]).abs().mean()),
        "dots/predicted_mean": float(rates_P.mean()),
    }


def correlation(guess_N: Tensor, truth_N: Tensor) -> float:
    """Pearson's; 0 where either does not vary."""
    guess_N, truth_N = guess_N - guess_N.mean(), truth_N - truth_N.mean()
    norms = float(guess_N.norm() * truth_N.norm())
    return float(guess_N @ truth_N) / norms if norms > 1e-12 else 0.0
