"""Pure functions of tensors and sparse matrices: no state, no I/O, no randomness."""
