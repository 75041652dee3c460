"""How arrays, labels, tables and our own containers are read and written."""

from selfexpress.files.arrays import (
    read_array,
    read_csr,
    read_labels,
    write_array,
    write_csr,
    write_labels,
)

__all__ = [
    "read_array",
    "read_csr",
    "read_labels",
    "write_array",
    "write_csr",
    "write_labels",
]
