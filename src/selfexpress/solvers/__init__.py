"""Solvers of the methods SENet is measured against: rows to sparse coefficients."""
