"""How much memory is free, and work that goes on in smaller blocks when it is not."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch

from selfexpress.errors import MemoryWarning

Result = TypeVar("Result")

# Where the system does not say how much memory is available.
_ASSUMED_FREE = 4 * 2**30
# Words of torch for a failed allocation that has no exception of its own: on the CPU,
# in cuBLAS and in cuSOLVER.
_EXHAUSTED = re.compile(
    r"can't allocate memory|not enough memory|out of memory|ALLOC_FAILED"
)


def free_bytes(device: torch.device) -> int:
    """Return the memory that can still be taken on a device.

    On the CPU this is the least of what the system has available, what the control
    group still admits and what the limits of this process leave (``ulimit``).
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    candidates = [_available(), _left_in_group(), *_left_in_limits()]
    known = [value for value in candidates if value is not None]
    return max(0, min(known, default=_ASSUMED_FREE))


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that an allocation failed, on the CPU or a GPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and bool(_EXHAUSTED.search(str(error)))


class BlockSize:
    """A number of rows that halves whenever memory does not suffice for them.

    Parameters
    ----------
    size : int
        Rows to start with.
    what : str
        Name of the work, for the warning.
    """

    def __init__(self, size: int, *, what: str) -> None:
        self.size = size
        self._what = what

    def run(self, function: Callable[[int], Result]) -> Result:
        """Return ``function(size)``, with half the size as often as memory runs out.

        The smaller size is kept for the next call. ``function`` is called from its
        start again, so it must not have changed anything before it fails.

        Raises
        ------
        Exception
            Whatever ``function`` raises that is not about memory, and what it raises
            when a single row does not fit.
        """
        while True:
            try:
                return function(self.size)
            except (MemoryError, RuntimeError) as error:
                if self.size <= 1 or not is_out_of_memory(error):
                    raise
            # Here the error and, with its frames, all that was allocated are gone.
            self._halve()

    def _halve(self) -> None:
        halved = self.size // 2
        warnings.warn(
            f"{self._what} must fit into memory, but {self.size} rows at a time do "
            f"not; going on with {halved}. Set block_size or batch_size lower, or free "
            "memory.",
            MemoryWarning,
            stacklevel=3,
        )
        self.size = halved
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def with_smaller_blocks(
    function: Callable[[int], Result], size: int, *, what: str
) -> Result:
    """Return ``function(size)``, with half the size as often as memory runs out.

    See :meth:`BlockSize.run`.
    """
    return BlockSize(size, what=what).run(function)


def _available() -> int | None:
    found = re.search(r"MemAvailable:\s*(\d+) kB", _text(Path("/proc/meminfo")))
    return 1024 * int(found.group(1)) if found else None


def _left_in_group(group: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return what the control group of a container admits (version 2)."""
    most = _text(group / "memory.max").strip()
    used = _text(group / "memory.current").strip()
    if not (most.isdigit() and used.isdigit()):
        return None
    # Files that were read stay in memory until it is wanted for something else.
    cached = re.search(r"inactive_file (\d+)", _text(group / "memory.stat"))
    return int(most) - int(used) + (int(cached.group(1)) if cached else 0)


def _left_in_limits() -> list[int]:
    """Return what the limits on address space and data leave to this process."""
    try:
        import resource
    except ImportError:  # Windows
        return []
    status = _text(Path("/proc/self/status"))
    left = []
    for limit, field in (
        (resource.RLIMIT_AS, "VmSize"),
        (resource.RLIMIT_DATA, "VmData"),
    ):
        most = resource.getrlimit(limit)[0]
        used = re.search(rf"{field}:\s*(\d+) kB", status)
        if most != resource.RLIM_INFINITY and used:
            left.append(most - 1024 * int(used.group(1)))
    return left


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
