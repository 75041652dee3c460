"""One module per file format; ``selfexpress.data.files`` looks them up by suffix."""
