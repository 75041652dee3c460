"""What the lengths of rows do to SSC-OMP, on the paper's features of test images.

Rows are pursued as long as they come, and scaled to unit length; each with several
numbers of rows that may express one, as many eigenvectors as clusters.

    selfexpress bench ssc-omp-lengths
    selfexpress bench ssc-omp-lengths --quick           1,200 images, no record
"""

from __future__ import annotations

import argparse

import torch

from reproduction.cells import Context
from reproduction.evaluation import Clustering, scores
from reproduction.inputs import image_rows
from reproduction.places import default_cache
from reproduction.presets import preset_of
from reproduction.timing import write_record
from selfexpress import SSCOMP

N_NONZERO = (3, 5, 10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small, no record")
    # Those with a test part.
    parser.add_argument(
        "--dataset", default="mnist", choices=("mnist", "fashion-mnist")
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    preset = preset_of(options.dataset, options.quick)
    rows = image_rows(preset, Context(device, default_cache()))
    start = 0 if options.quick else rows.n_first
    X, truth = rows.unscaled()[start:], rows.labels[start:]
    results: dict[str, dict[str, dict[str, float]]] = {}
    for way, normalize in (("as they come", False), ("unit length", True)):
        for n_nonzero in N_NONZERO:
            model = SSCOMP(
                preset.n_clusters,
                n_nonzero=n_nonzero,
                normalize=normalize,
                device=device,
                random_state=options.seed,
            ).fit(X)
            found = scores(
                Clustering(
                    model.coefficients_,
                    model.affinity_matrix_,
                    model.labels_,
                    model.embedding_,
                ),
                truth,
            )
            results.setdefault(way, {})[str(n_nonzero)] = found
            print(
                f"{way}, {n_nonzero} entries: ACC {found['accuracy']:.3f}, "
                f"wrong edges {100 * found['wrong_edges']:.1f} %",
                flush=True,
            )
    if not options.quick:
        config = {"dataset": options.dataset, "rows": len(X)}
        claim = f"ssc-omp-lengths-{options.dataset}"
        print(write_record(claim, results, config, seed=options.seed, device=device))


if __name__ == "__main__":
    main()
