"""Features that lie near subspaces, as scikit-learn transformers."""

from selfexpress.features.encoder import CodingRateEncoder
from selfexpress.features.scattering import Scattering2D
from selfexpress.features.trajectories import Trajectories
from selfexpress.features.whitening import Whitening

__all__ = ["CodingRateEncoder", "Scattering2D", "Trajectories", "Whitening"]
