"""Timing and records shared by every benchmark.

A record is one JSON file, ``benchmarks/records/<claim>_<hardware>_<YYYYMMDD>.json``,
with everything needed to read a figure later: what was run, on what, from which
commit, with which seed, how often, and how accurate the answer was.

Run a benchmark as ``python benchmarks/bench_<claim>.py``; it imports this module from
its own folder.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
RECORDS = Path(__file__).resolve().parent / "records"
PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "numba", "kymatio")


@dataclass(frozen=True)
class Timing:
    """Seconds of repeated runs, and the most memory any of them used.

    Attributes
    ----------
    median, spread : float
        Median of the repeats, and largest minus smallest.
    seconds : tuple of float
        Every repeat, in order.
    peak_bytes : int
        On CUDA the allocator's peak during the repeats; otherwise the largest resident
        size the process ever had, which earlier steps of the process may have set.
    """

    median: float
    spread: float
    seconds: tuple[float, ...]
    peak_bytes: int


def timed(
    function: Callable[[], object],
    repeats: int = 5,
    *,
    warmup: int = 1,
    device: torch.device | str = "cpu",
) -> Timing:
    """Time ``function`` after ``warmup`` untimed calls, waiting for the device."""
    return alternately({"only": function}, repeats, warmup=warmup, device=device)[
        "only"
    ]


def alternately(
    functions: dict[str, Callable[[], object]],
    repeats: int = 5,
    *,
    warmup: int = 1,
    device: torch.device | str = "cpu",
) -> dict[str, Timing]:
    """Time several functions in turn, so that a busy machine slows all alike."""
    device = torch.device(device)
    for function in functions.values():
        for _ in range(warmup):
            function()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            seconds[name].append(_once(function, device))
    peak = peak_bytes(device)
    return {name: _timing(values, peak) for name, values in seconds.items()}


def peak_bytes(device: torch.device | str = "cpu") -> int:
    """Return the allocator's peak on CUDA, or the process's largest resident size."""
    device = torch.device(device)
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def hardware(device: torch.device | str = "cpu") -> dict[str, Any]:
    """Describe the machine: processor, cores in use, memory and the device's name."""
    device = torch.device(device)
    return {
        "device": device.type,
        "name": _device_name(device),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "torch_threads": torch.get_num_threads(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.machine()}",
    }


def versions() -> dict[str, str]:
    """Return the versions of Python and of every package that matters for speed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "absent"
    return found


def commit() -> dict[str, Any]:
    """Return the commit and whether the tree differs from it, where git knows them."""
    head = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain")
    return {"commit": head, "dirty": None if changes is None else bool(changes)}


def write_record(
    claim: str,
    results: dict[str, Any],
    config: dict[str, Any],
    *,
    seed: int,
    device: torch.device | str = "cpu",
    folder: Path = RECORDS,
) -> Path:
    """Write one record and return its path.

    Parameters
    ----------
    claim : str
        Name of the claim, the first part of the file's name.
    results : dict
        Figures measured, accuracy included. `Timing`, NumPy scalars and arrays,
        tensors and paths are written as plain JSON.
    config : dict
        Every setting that shaped the run.
    seed : int
    device : torch.device or str
        What the claim was measured on; it names the hardware in the file's name.
    folder : Path
    """
    now = datetime.now(UTC)
    machine = hardware(device)
    record = {
        "claim": claim,
        "date": now.isoformat(timespec="seconds"),
        "command": " ".join(["python", *_relative_arguments()]),
        **commit(),
        "hardware": machine,
        "versions": versions(),
        "config": config,
        "seed": seed,
        "results": results,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{claim}_{_slug(machine)}_{now:%Y%m%d}.json"
    path.write_text(json.dumps(record, indent=2, default=_plain) + "\n")
    return path


def _once(function: Callable[[], object], device: torch.device) -> float:
    _synchronize(device)
    start = time.perf_counter()
    function()
    _synchronize(device)
    return time.perf_counter() - start


def _timing(seconds: list[float], peak: int) -> Timing:
    return Timing(
        median=float(np.median(seconds)),
        spread=max(seconds) - min(seconds),
        seconds=tuple(seconds),
        peak_bytes=peak,
    )


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{len(os.sched_getaffinity(0))} cores"


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    found = re.search(r"model name\s*:\s*(.+)", text)
    return found.group(1) if found else platform.processor()


def _slug(machine: dict[str, Any]) -> str:
    """Name the hardware for a file: ``h200`` or ``cpu2``."""
    if machine["device"] != "cuda":
        return f"cpu{machine['cores']}"
    name = re.sub(r"nvidia|geforce|tesla", "", machine["name"].lower())
    return re.sub(r"[^a-z0-9]+", "-", name).strip("-") or "gpu"


def _relative_arguments() -> list[str]:
    """Return the command with paths inside the project, and names alone outside."""
    script = Path(sys.argv[0]).resolve()
    inside = script.is_relative_to(ROOT)
    return [
        str(script.relative_to(ROOT) if inside else script.name),
        *(Path(word).name if word.startswith("/") else word for word in sys.argv[1:]),
    ]


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *arguments],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _plain(value: object) -> object:
    """Turn what JSON does not know into what it does."""
    if isinstance(value, Timing):
        return asdict(value)
    if isinstance(value, (np.generic, np.ndarray, torch.Tensor)):
        return value.tolist()
    if isinstance(value, Path):
        # Where a file lay on one machine means nothing on another.
        return value.name
    if isinstance(value, (torch.device, torch.dtype)):
        return str(value)
    raise TypeError(f"cannot write {type(value).__name__} into a record")
