"""Use an installed package as a user would; called by ``make build-check``."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import selfexpress
from selfexpress import SENet, make_subspaces, metrics


def main() -> None:
    """Fit, save, load, predict and ask the command line for its version."""
    place = Path(selfexpress.__file__).resolve()
    assert "site-packages" in place.parts, f"{place} is not an installed package"
    assert (place.parent / "py.typed").exists()
    data = make_subspaces(3, dimension=2, n_features=10, n_samples=40, random_state=0)
    settings = {"hidden_sizes": (64,), "n_embedding": 64, "max_iter": 300}
    model = SENet(3, **settings, affinity="symmetric", random_state=0).fit(data.X)
    accuracy = metrics.clustering_accuracy(model.labels_, data.labels)
    assert accuracy > 0.9, accuracy
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.selfexpress"
        model.save(path)
        loaded = SENet.load(path)
        np.testing.assert_array_equal(loaded.predict(data.X), model.predict(data.X))
    command = Path(sys.executable).with_name("selfexpress")
    done = subprocess.run([command, "--version"], capture_output=True, text=True)
    assert done.stdout.strip() == selfexpress.__version__, done
    sys.stdout.write(f"selfexpress {selfexpress.__version__} works, {accuracy:.3f}\n")


if __name__ == "__main__":
    main()
