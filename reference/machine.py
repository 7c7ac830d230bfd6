"""Which machine was measured, with which software, when, and in what state."""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from os import cpu_count, getloadavg
from pathlib import Path
from typing import Any

import torch

from twin.errors import Problem, UsageError

WATCHED = ("clocks.sm", "clocks.mem", "power.draw", "power.limit", "temperature.gpu")
"""What nvidia-smi is asked for, before and after each group."""
BUSY = 0.5
"""Load per core, beside this process's own, from which a machine counts as busy."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A device with its software. `name` is what parts are called after; `units` are SMs, or
    threads of a CPU; `memory` is the device's in bytes, `free` what of it nobody held; `count` are
    its GPUs, or cores."""

    name: str
    device: str
    kind: str
    units: int
    memory: int
    free: int
    host_memory: int
    count: int
    capability: str
    software: str
    date: str

    @property
    def hopper(self) -> bool:
        """Whether it is of the generation that bars are stated for."""
        return self.capability == "9.0"

    def as_dict(self) -> dict[str, Any]:
        """As it is written beside points."""
        return asdict(self)


def pick(wanted: str) -> torch.device:
    """The device that `auto`, `cpu` or `cuda` means here. Raises `UsageError`."""
    if wanted not in ("auto", "cpu", "cuda"):
        message = f"there is no device `{wanted}`"
        raise UsageError([Problem("TW260", "--device", message, "write auto, cpu or cuda")])
    if wanted == "cuda" and not torch.cuda.is_available():
        message = f"torch {torch.__version__} sees no CUDA device here"
        fix = "leave `--device` out to measure the CPU, or install a CUDA build of torch"
        raise UsageError([Problem("TW260", "--device", message, fix)])
    cuda = wanted == "cuda" or (wanted == "auto" and torch.cuda.is_available())
    return torch.device("cuda", 0) if cuda else torch.device("cpu")


def inspect(device: torch.device, name: str | None = None) -> Machine:
    """What is here."""
    date = datetime.now(UTC).date().isoformat()
    if device.type == "cuda":
        found = torch.cuda.get_device_properties(device)
        free, total = torch.cuda.mem_get_info(device)
        driver = next(iter(_smi("driver_version")), "unknown")
        software = f"torch {torch.__version__}, CUDA {torch.version.cuda}, driver {driver}"
        return Machine(
            name or f"{slug(found.name)}-{torch_release()}",
            found.name,
            "cuda",
            found.multi_processor_count,
            _exposed(total),
            free,
            _memory("MemTotal"),
            torch.cuda.device_count(),
            f"{found.major}.{found.minor}",
            software,
            date,
        )
    threads = torch.get_num_threads()
    processor = _processor()
    cores = f"{threads}core"
    own = f"{threads} thread{'s' * (threads > 1)}"
    return Machine(
        name or f"{slug(processor)}-{cores}-{torch_release()}",
        f"{processor}, {threads} of {cpu_count()} cores",
        "cpu",
        threads,
        _memory("MemTotal"),
        _memory("MemAvailable"),
        _memory("MemTotal"),
        cpu_count() or 1,
        torch.backends.cpu.get_cpu_capability(),
        f"torch {torch.__version__}, {own}, Python {platform.python_version()}",
        date,
    )


def torch_release() -> str:
    """`torch2.13`."""
    return "torch" + ".".join(torch.__version__.split(".")[:2])


def slug(text: str) -> str:
    """A name as files are called."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")


def state() -> Mapping[str, str | float]:
    """Clocks, power and temperature of the GPU where nvidia-smi tells them, and the load of the
    host: processes that ran or waited, over the last minute."""
    found: dict[str, str | float] = {"load": round(getloadavg()[0], 2)}
    answer = _smi(*WATCHED)
    return found | dict(zip(WATCHED, answer, strict=True)) if answer else found


def busy(machine: Machine, load: float) -> bool:
    """Whether others kept the cores occupied; `load` counts this process, too."""
    return load - machine.units > BUSY * machine.count if machine.kind == "cpu" else False


def _smi(*fields: str) -> list[str]:
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    first = [word.strip() for word in done.stdout.splitlines()[0].split(",")]
    return first if len(first) == len(fields) else []


def _exposed(total: int) -> int:
    """Bytes of device memory that the driver exposes: nvidia-smi's total, which counts what CUDA
    itself holds; CUDA's where there is none."""
    text = next(iter(_smi("memory.total")), "")
    found = re.fullmatch(r"(\d+) MiB", text)
    return int(found[1]) * 2**20 if found else total


def _processor() -> str:
    """The CPU's name; where a hypervisor cut it short, with family and model."""
    fields = _fields(Path("/proc/cpuinfo"))
    name = fields.get("model name") or platform.processor() or platform.machine()
    name = re.sub(r"\((R|TM)\)|CPU|Processor|@.*", "", name)
    short = " ".join(name.split())
    if any(letter.isdigit() for letter in short) or "cpu family" not in fields:
        return short
    return f"{short} family {fields['cpu family']} model {fields['model']}"


def _memory(field: str) -> int:
    text = _fields(Path("/proc/meminfo")).get(field, "")
    found = re.fullmatch(r"(\d+) kB", text)
    return int(found[1]) * 1024 if found else 0


def _fields(path: Path) -> dict[str, str]:
    """`name : value` lines, the first of each name."""
    found: dict[str, str] = {}
    lines = path.read_text().splitlines() if path.exists() else []
    for line in lines:
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    return found
