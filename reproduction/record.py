"""What was run, on what, and what came out: one line of JSON a run.

A record carries everything needed to read a figure later: command, commit, hardware,
versions, settings, seed and date.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import warnings
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from selfexpress.errors import DamagedFileWarning, DataError

Record = dict[str, Any]

PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "numba", "kymatio")

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "reproduction" / "records"


def data_folder() -> Path:
    """Return the folder of real data sets that ``SELFEXPRESS_DATA`` names."""
    if "SELFEXPRESS_DATA" not in os.environ:
        raise DataError(
            "SELFEXPRESS_DATA must name the folder of real data sets, but is not set. "
            "Set it, or leave out the experiments that need them."
        )
    return Path(os.environ["SELFEXPRESS_DATA"])


def provenance(device: torch.device | str = "cpu") -> dict[str, Any]:
    """Return what a record says about its origin: date, command, commit, machine."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command_line(),
        **commit(),
        "hardware": hardware(device),
        "versions": versions(),
    }


def write_record(
    task: str,
    metrics: dict[str, Any],
    settings: dict[str, Any],
    *,
    seed: int,
    device: torch.device | str = "cpu",
    seconds: dict[str, float] | None = None,
    folder: Path = RECORDS,
) -> Path:
    """Add the record of one measurement to ``folder/<task>.jsonl``; return that file.

    Parameters
    ----------
    task : str
        What was measured.
    metrics : dict
        Figures, accuracy included. Dataclasses, NumPy scalars and arrays, tensors and
        paths are written as plain JSON.
    settings : dict
        Every setting that shaped the run.
    seed : int
    device : torch.device or str
        What it was measured on.
    seconds : dict of str to float, optional
        By stage.
    folder : Path
    """
    path = folder / f"{task}.jsonl"
    record = {"task": task, "seed": seed, "settings": settings, **provenance(device)}
    append_record(
        path, record | {"metrics": metrics, "seconds": seconds or {}, "warnings": []}
    )
    return path


def append_record(path: Path, record: Record) -> None:
    """Add one line to a file of records, on the disk before this returns.

    A line cut short by a crash is closed first, so that it spoils no other.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(record, default=plain) + "\n"
    with path.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(line.encode())
        file.flush()
        os.fsync(file.fileno())


def read_records(path: Path) -> list[Record]:
    """Return the records of a file, oldest first; none if there is no file.

    Before them come those that benchmarks wrote in a file each, until November 2026,
    beside it: ``<task>_<hardware>_<YYYYMMDD>.json``, or ``<task>-<data set>_...``.

    Warns
    -----
    DamagedFileWarning
        If a line was cut short, as by a crash; it is left out.
    """
    found = _documents(path)
    lines = path.read_bytes().splitlines() if path.is_file() else []
    for number, line in enumerate(lines, start=1):
        if not line.strip(b" \t\0"):  # NUL is what a power cut may leave
            continue
        try:
            found.append(json.loads(line))
        except ValueError:
            warnings.warn(
                f"Line {number} of {path} is left out, as it is no JSON. Its cell "
                "counts as not run; remove the line.",
                DamagedFileWarning,
                stacklevel=2,
            )
    return found


def _documents(path: Path) -> list[Record]:
    """Return the records of single files beside ``path``, oldest first."""
    found = []
    for file in path.parent.glob("*.json"):
        old = json.loads(file.read_text())
        claim = old.pop("claim").replace("_", "-")
        if claim == path.stem or claim.startswith(f"{path.stem}-"):
            renamed = {"settings": old.pop("config"), "metrics": old.pop("results")}
            empty: dict[str, Any] = {"seconds": {}, "warnings": []}
            found.append({"task": claim, **old, **renamed, **empty})
    return sorted(found, key=lambda record: record["date"])


def peak_bytes(device: torch.device | str = "cpu") -> int:
    """Return the allocator's peak on CUDA, or the process's largest resident size."""
    device = torch.device(device)
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    import resource  # there is none on Windows

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def hardware(device: torch.device | str = "cpu") -> dict[str, Any]:
    """Describe the machine: processor, cores in use, memory and the device's name."""
    device = torch.device(device)
    return {
        "device": device.type,
        "name": _device_name(device),
        "processor": _processor(),
        "cores": _n_cores(),
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
    """Return the commit and whether the tree differs from it, where git knows them.

    ``SELFEXPRESS_COMMIT`` names it for a copy of the tree without git's history, or
    inside another repository.
    """
    given = os.environ.get("SELFEXPRESS_COMMIT")
    if given:
        return {"commit": given, "dirty": None}
    head, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain")
    return {"commit": head, "dirty": None if changes is None else bool(changes)}


def command_line() -> str:
    """Return the command with paths inside the project, and names alone outside."""
    script = Path(sys.argv[0]).resolve()
    words = [Path(word).name if word.startswith("/") else word for word in sys.argv[1:]]
    if script == ROOT / "reproduction" / "__main__.py":
        return " ".join(["python -m reproduction", *words])
    name = script.relative_to(ROOT) if script.is_relative_to(ROOT) else script.name
    return " ".join(["python", str(name), *words])


def plain_copy(record: Record) -> Record:
    """Return a record as it is read back from its file."""
    copy: Record = json.loads(json.dumps(record, default=plain))
    return copy


def plain(value: object) -> object:
    """Turn what JSON does not know into what it does."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, np.generic | np.ndarray | torch.Tensor):
        return value.tolist()
    if isinstance(value, Path):
        # Where a file lay on one machine means nothing on another.
        return value.name
    if isinstance(value, torch.device | torch.dtype):
        return str(value)
    raise TypeError(f"cannot write {type(value).__name__} into a record")


def _n_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{_n_cores()} cores"


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    found = re.search(r"model name\s*:\s*(.+)", text)
    return found.group(1) if found else platform.processor()


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
