"""Rows and labels: sources read in blocks, files by suffix, synthetic and real data."""
