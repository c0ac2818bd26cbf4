"""What a program may use, and how it ended."""

import math
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

MIB = 1 << 20

Status = Literal["ok", "error", "timeout", "memory", "output", "killed"]


class Limits(BaseModel):
    """Bounds of one run (defaults assumed, sized for the tests of a function)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seconds: float = Field(10.0, gt=0, le=3600, description="wall clock, start included")
    memory_mib: int = Field(512, ge=64, description="of a process, and resident in all")
    processes: int = Field(32, ge=1, le=4096, description="processes and threads at a time")
    file_mib: int = Field(16, ge=1, description="longest file")
    disk_mib: int = Field(64, ge=1, description="all files, which are in memory")
    open_files: int = Field(64, ge=16, description="file descriptors of a process")
    output_kib: int = Field(256, ge=1, description="stdout and stderr together")

    def rlimits(self) -> dict[str, tuple[int, int]]:
        """Soft and hard limits by their names in `resource`."""
        seconds = math.ceil(self.seconds)
        return {
            "RLIMIT_AS": (self.memory_mib * MIB,) * 2,
            # The soft one can be told from other ends (SIGXCPU), the hard one cannot be caught.
            "RLIMIT_CPU": (seconds, seconds + 1),
            "RLIMIT_NPROC": (self.processes,) * 2,
            "RLIMIT_FSIZE": (self.file_mib * MIB,) * 2,
            "RLIMIT_NOFILE": (self.open_files,) * 2,
            "RLIMIT_CORE": (0, 0),
            "RLIMIT_MSGQUEUE": (0, 0),
            "RLIMIT_MEMLOCK": (0, 0),
        }


class Outcome(NamedTuple):
    """How a run ended. `code` is the exit code, -N after signal N, None where we ended it."""

    status: Status
    code: int | None
    stdout: str
    stderr: str
    seconds: float
