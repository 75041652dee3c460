"""New points are named as the fitted ones were, on real digits and default settings."""

from __future__ import annotations

import numpy as np
import pytest

from selfexpress import SENet
from selfexpress.datasets.loading import load_dataset
from selfexpress.features.scattering import Scattering2D
from selfexpress.features.whitening import Whitening
from selfexpress.metrics import adjusted_rand, clustering_accuracy


@pytest.mark.slow
def test_held_out_digits_are_named_as_well_as_fitted_ones(data_folder):
    digits = load_dataset("mnist", split="test", root=data_folder)
    is_new = np.random.default_rng(0).permutation(len(digits)) % 5 == 0
    scattering, whitening = Scattering2D(resize=32), Whitening(150)
    rows = scattering.fit_transform(digits.samples)
    fitted = whitening.fit_transform(rows[~is_new])
    new = whitening.transform(rows[is_new])

    model = SENet(10, random_state=0).fit(fitted)

    accuracy = clustering_accuracy(model.labels_, digits.labels[~is_new])
    named = model.predict(new)
    assert accuracy >= 0.95
    assert adjusted_rand(model.predict(fitted), model.labels_) >= 0.95
    assert clustering_accuracy(named, digits.labels[is_new]) >= accuracy - 0.02
