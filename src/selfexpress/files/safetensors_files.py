"""Arrays in ``.safetensors`` files; the library checks the header against the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from selfexpress.files.formats import (
    Array,
    Container,
    Entry,
    container_format,
)

# Types that NumPy lacks are left out, but for bfloat16, which is read as float32.
BFLOAT16 = "BF16"
_TYPES = {
    BFLOAT16: np.float32,
    "BOOL": np.bool_,
    "U8": np.uint8,
    "U16": np.uint16,
    "U32": np.uint32,
    "U64": np.uint64,
    "I8": np.int8,
    "I16": np.int16,
    "I32": np.int32,
    "I64": np.int64,
    "F16": np.float16,
    "F32": np.float32,
    "F64": np.float64,
}


@contextmanager
def open_safetensors(path: Path) -> Iterator[Container]:
    """Open a file of named tensors."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as tensors:
        entries = {}
        for name in tensors.keys():  # noqa: SIM118 - not a mapping
            part = tensors.get_slice(name)
            dtype = np.dtype(_TYPES.get(part.get_dtype(), np.object_))
            entries[name] = Entry(tuple(part.get_shape()), dtype)

        def read(name: str) -> Array:
            if tensors.get_slice(name).get_dtype() == BFLOAT16:
                return _read_bfloat16(path, name)
            array: Array = tensors.get_tensor(name)
            return array

        yield Container(entries, read)


def _read_bfloat16(path: Path, name: str) -> Array:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as tensors:
        array: Array = tensors.get_tensor(name).float().numpy()
    return array


def write_safetensors(path: Path, name: str, array: Array) -> None:
    """Write one named tensor."""
    from safetensors.numpy import save_file

    # The library writes the memory as it lies, whatever the strides.
    save_file({name: np.ascontiguousarray(array)}, path)


SAFETENSORS = container_format(open_safetensors, write_safetensors, writes_text=False)
