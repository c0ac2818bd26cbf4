"""Bugfix: the patch that mends the one wrong line; the held-out prompts of curation."""

from posttrain.benchmark.suites.sources import Generated, HeldOut
from posttrain.benchmark.suites.suite import Suite

SUITE = Suite(
    name="bugfix",
    about=__doc__,
    source=HeldOut("bugfix", otherwise=Generated("bugfix", n=200, seed=20_261)),
    paper="procedural, posttrain.tasks.bugfix; after arXiv:2502.18449",
    licence="that of posttrain",
    contamination="disjoint from training by a hash of the text (posttrain.tasks.split_of)",
)
