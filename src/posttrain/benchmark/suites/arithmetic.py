"""Arithmetic word problems of 1 to 4 steps: the held-out prompts of curation."""

from posttrain.benchmark.suites.sources import Generated, HeldOut
from posttrain.benchmark.suites.suite import Suite

SUITE = Suite(
    name="arithmetic",
    about=__doc__,
    source=HeldOut("arithmetic", otherwise=Generated("arithmetic", n=500, seed=20_260)),
    paper="none: procedural, posttrain.tasks.arithmetic",
    licence="that of posttrain",
    contamination="disjoint from training by a hash of the text (posttrain.tasks.split_of)",
)
