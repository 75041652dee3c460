"""Features that lie near subspaces, as scikit-learn transformers."""

from selfexpress.features.scattering import Scattering2D
from selfexpress.features.trajectories import Trajectories
from selfexpress.features.whitening import Whitening

__all__ = ["Scattering2D", "Trajectories", "Whitening"]
