"""What a process of a TrainJob does: the command line.

Process 0 leaves its exit code in a file, for `torchrun` ends with 1 whatever it was.
"""

import os
import sys
from pathlib import Path

from posttrain import cli
from posttrain.artifacts import write_json
from posttrain.trainjob.following import CODE, HOME

if __name__ == "__main__":
    code = cli.main()
    if os.environ.get("RANK") == "0":
        write_json(Path(os.environ[HOME]) / CODE, {"code": code})
    sys.exit(code)
