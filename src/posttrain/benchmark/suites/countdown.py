"""Countdown: reach a number with the given ones; 200 problems, out of the trained domain."""

from posttrain.benchmark.suites.sources import Generated
from posttrain.benchmark.suites.suite import Suite

SUITE = Suite(
    name="countdown",
    about=__doc__,
    source=Generated("countdown", n=200, seed=20_262),
    paper="procedural, posttrain.tasks.countdown; after arXiv:2404.03683",
    licence="that of posttrain",
    contamination="disjoint from training by a hash of the text (posttrain.tasks.split_of)",
)
