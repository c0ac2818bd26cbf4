"""What a process holds while it works, whether it uses it or not: accelerators and cores."""

import os
import re
from pathlib import Path
from typing import NamedTuple

ACCELERATORS = "POSTTRAIN_ACCELERATORS"
CORES = "POSTTRAIN_CORES"


class Resources(NamedTuple):
    """Accelerators of one kind, and cores (a container may have half of one)."""

    accelerators: int
    kind: str
    cores: float


def seen(root: Path = Path("/")) -> Resources:
    """What this container or machine has. `POSTTRAIN_ACCELERATORS="8 MI300X"` and
    `POSTTRAIN_CORES=16` outrank what is found: NVIDIA devices, and the quota or set of cores."""
    told = re.fullmatch(r"\s*(\d+)\s*(.*?)\s*", os.environ.get(ACCELERATORS, ""))
    count, kind = (int(told[1]), told[2]) if told else nvidia(root)
    return Resources(count, kind, float(os.environ.get(CORES) or cores(root)))


def nvidia(root: Path) -> tuple[int, str]:
    """NVIDIA devices that this container is given, without the second that importing torch takes;
    CUDA_VISIBLE_DEVICES narrows them."""
    devices = [p for p in (root / "dev").glob("nvidia*") if re.fullmatch(r"nvidia\d+", p.name)]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = len(devices)
    if visible is not None:
        named = [part for part in visible.split(",") if part.strip() not in ("", "-1", "void")]
        count = min(count, len(named))
    for path in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        model = re.search(r"^Model:\s*(.+)$", path.read_text(errors="replace"), re.MULTILINE)
        if model and count:
            return count, model[1].strip()
    return count, "unknown" if count else ""


def cores(root: Path) -> float:
    """The container's quota of processor time, else the cores that this process may use."""
    try:
        quota, period = (root / "sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return int(quota) / int(period)
    except (OSError, ValueError):
        return float(len(os.sched_getaffinity(0)))
