"""Features that lie near subspaces, as scikit-learn transformers."""

from selfexpress.features.encoder import CodingRateEncoder
from selfexpress.features.scattering import Scattering2D
from selfexpress.features.streaming import MappedSource
from selfexpress.features.whitening import Whitening

__all__ = ["CodingRateEncoder", "MappedSource", "Scattering2D", "Whitening"]
