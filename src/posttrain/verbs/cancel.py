"""`posttrain cancel RUN`: stop a run on a cluster.

Every pod gets SIGTERM and its grace: stages write checkpoints and exit with 75, so that the same
graph with the same store goes on where this one stopped. A run on this machine: Ctrl-C.
"""

from collections.abc import Sequence

from posttrain.cluster import add_cluster, cluster_of
from posttrain.command_line import Parser


def main(argv: Sequence[str]) -> int:
    """Ask the cluster to stop the run; it takes as long as the pods' grace."""
    parser = Parser(prog="posttrain cancel", description=__doc__)
    parser.add_argument("run", metavar="RUN")
    add_cluster(parser, default="kubeflow")
    given = parser.parse_args(list(argv))
    cluster = cluster_of(given)
    cluster.cancel(given.run)
    print(f"{given.run} is stopping: {cluster.where(given.run)}")
    return 0
