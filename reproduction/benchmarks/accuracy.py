"""SENet with its defaults on the paper's data sets, five seeds each.

Images of digits and clothes are scattered and whitened; CIFAR-10 comes as features of
our own encoder. Smaller sets have a claim of their own, ``small_sets``.

    selfexpress bench accuracy
    selfexpress bench accuracy --quick            letters, few rows, one seed, no record
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from reproduction.timing import write_record
from selfexpress import SENet, load_dataset
from selfexpress.features import Scattering2D, Whitening
from selfexpress.metrics import (
    adjusted_rand,
    clustering_accuracy,
    normalized_mutual_info,
)

SETS = ("mnist", "fashion-mnist", "cifar10")
FEATURES = Path(__file__).resolve().parent / "features"


def features_of(
    name: str, root: str | None, device: torch.device, n_images: int | None = None
):
    """Return rows on the device, and the truth; of the first images if so asked."""
    if name == "cifar10":
        rows = np.load(FEATURES / "cifar10_features.npy").astype(np.float32)
        labels = np.load(FEATURES / "cifar10_labels.npy").astype(np.int64)
        return torch.from_numpy(rows).to(device), labels
    data = load_dataset(name, root=root)
    images = torch.from_numpy(np.array(data.samples[:n_images])).to(device)
    rows = Scattering2D().fit_transform(images)
    return Whitening().fit_transform(rows), data.labels[:n_images]


def scores(truth, labels) -> dict[str, float]:
    return {
        "accuracy": clustering_accuracy(truth, labels),
        "nmi": normalized_mutual_info(truth, labels),
        "ari": adjusted_rand(truth, labels),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small, no record")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data", help="folder of the data sets")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    names = ["ocr-letters"] if options.quick else options.sets.split(",")
    results = {}
    for name in names:
        n_images = 1000 if options.quick else None
        rows, truth = features_of(name, options.data, device, n_images)
        n_clusters = len(np.unique(truth))
        found = []
        for seed in range(1 if options.quick else options.seeds):
            model = SENet(n_clusters, random_state=seed, device=device)
            found.append(
                {
                    "seed": seed,
                    **scores(truth, model.fit(rows).labels_),
                    "objective": float(model.history_["objective"][-50:].mean()),
                    "seconds": sum(model.timings_.values()),
                }
            )
        results[name] = {"runs": found, **summary(found)}
        print(name, len(rows), summary(found), flush=True)
    if not options.quick:
        config = {"sets": names, "n_seeds": options.seeds}
        print(write_record("accuracy", results, config, seed=0, device=device))


def summary(runs: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Return mean, smallest and largest of every score."""
    return {
        key: {
            "mean": float(np.mean([run[key] for run in runs])),
            "smallest": min(run[key] for run in runs),
            "largest": max(run[key] for run in runs),
        }
        for key in ("accuracy", "nmi", "ari", "seconds")
    }


if __name__ == "__main__":
    main()
