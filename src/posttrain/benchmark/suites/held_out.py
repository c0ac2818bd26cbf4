"""Every prompt at the `evaluation` port, each with the verifier of its task."""

from posttrain.benchmark.suites.sources import HeldOut
from posttrain.benchmark.suites.suite import Suite

SUITE = Suite(
    name="held_out",
    about=__doc__,
    source=HeldOut(),
    paper="none: the run's own data",
    licence="that of the rows",
    contamination="curation keeps these prompts out of every training set",
)
