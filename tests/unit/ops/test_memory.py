from __future__ import annotations

import resource
import subprocess
import sys
import warnings
import weakref

import numpy as np
import pytest
import torch

from selfexpress.errors import MemoryWarning
from selfexpress.ops import memory
from selfexpress.ops.memory import (
    BlockSize,
    free_bytes,
    with_smaller_blocks,
)

CPU = torch.device("cpu")


def failing_above(limit: int, error: Exception):
    """Return a function that fails for sizes above a limit, and the sizes it saw."""
    seen: list[int] = []

    def function(size: int) -> int:
        seen.append(size)
        if size > limit:
            raise error
        return size

    return function, seen


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 8 TiB"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"),
        RuntimeError(
            "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"
        ),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_size_halves_until_the_work_fits(error):
    function, seen = failing_above(30, error)
    with pytest.warns(MemoryWarning) as caught:
        assert with_smaller_blocks(function, 100, what="The work") == 25
    assert seen == [100, 50, 25]
    first, second = (str(warning.message) for warning in caught)
    assert "100 rows at a time do not; going on with 50" in first
    assert "50 rows at a time do not; going on with 25" in second


def test_the_smaller_size_is_kept_for_the_next_call():
    block = BlockSize(64, what="A step")
    function, seen = failing_above(20, MemoryError())
    with pytest.warns(MemoryWarning):
        block.run(function)
    assert block.run(function) == block.size == 16
    assert seen == [64, 32, 16, 16]


def test_other_errors_pass_without_a_second_try():
    function, seen = failing_above(1, RuntimeError("shapes do not match"))
    with pytest.raises(RuntimeError, match="shapes"):
        with_smaller_blocks(function, 8, what="The work")
    assert seen == [8]


def test_one_row_that_does_not_fit_is_an_error():
    function, seen = failing_above(0, MemoryError("no"))
    with pytest.warns(MemoryWarning), pytest.raises(MemoryError):
        with_smaller_blocks(function, 3, what="The work")
    assert seen == [3, 1]


def test_what_the_failed_try_held_is_free_before_the_next():
    held = []

    def function(size: int) -> bool:
        if held:
            return held[0]() is None
        block = np.zeros(size)
        held.append(weakref.ref(block))
        raise MemoryError

    with pytest.warns(MemoryWarning):
        assert with_smaller_blocks(function, 4, what="The work")


def test_torch_and_numpy_say_that_memory_is_out_in_words_we_know():
    """Real failures of both libraries, not imitations: 2^60 numbers fit nowhere."""
    for allocate in (
        lambda: torch.empty(2**60, dtype=torch.uint8),
        lambda: np.empty(2**60, dtype=np.uint8),
    ):
        with pytest.raises((MemoryError, RuntimeError)) as caught:
            allocate()
        assert memory.is_out_of_memory(caught.value)


def test_free_memory_of_a_machine_without_limits_is_what_the_system_says():
    text = memory._text(memory.Path("/proc/meminfo"))
    total = 1024 * int(text.split("MemTotal:")[1].split()[0])
    assert 0 < free_bytes(CPU) <= total


LIMITED = """
import resource, torch
from selfexpress.ops.memory import free_bytes
status = open("/proc/self/status").read()
used = 1024 * int(status.split("{field}:")[1].split()[0])
resource.setrlimit(resource.{limit}, (used + {extra}, resource.RLIM_INFINITY))
print(free_bytes(torch.device("cpu")))
"""


@pytest.mark.parametrize(
    ("limit", "field"), [("RLIMIT_AS", "VmSize"), ("RLIMIT_DATA", "VmData")]
)
def test_limits_of_the_process_count(limit, field):
    extra = 100 * 2**20
    script = LIMITED.format(limit=limit, field=field, extra=extra)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    # What happens between the two looks takes a little.
    assert 0.8 * extra < int(done.stdout) <= extra, done.stderr


def test_control_groups_count_without_what_is_only_cached(tmp_path):
    assert memory._left_in_group(tmp_path) is None
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("700\n")
    assert memory._left_in_group(tmp_path) == 300
    (tmp_path / "memory.stat").write_text("anon 100\ninactive_file 250\n")
    assert memory._left_in_group(tmp_path) == 550
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._left_in_group(tmp_path) is None


def test_nothing_known_is_a_cautious_guess(monkeypatch):
    monkeypatch.setattr(memory, "_text", lambda path: "")
    monkeypatch.setattr(resource, "getrlimit", lambda limit: (-1, -1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert free_bytes(CPU) == 4 * 2**30
