"""The paper's tables and figures, and our measurements, on one runner."""
