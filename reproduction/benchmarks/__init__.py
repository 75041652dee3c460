"""Measurements of our own: a file a claim."""

from reproduction.benchmarks import (
    cifar10_encoder,
    deformed_mnist,
    ensc,
    graphs,
    hopkins155,
    large_data,
    paper_features,
    pipeline,
    predict_rules,
    scattering,
    small_sets,
    training_step,
    whole_sets,
)

__all__ = [
    "cifar10_encoder",
    "deformed_mnist",
    "ensc",
    "graphs",
    "hopkins155",
    "large_data",
    "paper_features",
    "pipeline",
    "predict_rules",
    "scattering",
    "small_sets",
    "training_step",
    "whole_sets",
]
