"""From an affinity to an embedding and labels."""

from selfexpress.spectral.clusters import SpectralClusters, spectral_clusters
from selfexpress.spectral.eigenvectors import laplacian_eigenvectors

__all__ = ["SpectralClusters", "laplacian_eigenvectors", "spectral_clusters"]
