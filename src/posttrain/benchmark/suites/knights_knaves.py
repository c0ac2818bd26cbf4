"""Knights and knaves: who tells the truth? 200 puzzles, out of the trained domain."""

from posttrain.benchmark.suites.sources import Generated
from posttrain.benchmark.suites.suite import Suite

SUITE = Suite(
    name="knights_knaves",
    about=__doc__,
    source=Generated("knights_knaves", n=200, seed=20_261),
    paper="procedural, posttrain.tasks.knights_knaves; after arXiv:2410.23123",
    licence="that of posttrain",
    contamination="disjoint from training by a hash of the text (posttrain.tasks.split_of)",
)
