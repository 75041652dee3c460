"""Motion segmentation: mean error over the 155 sequences of Hopkins155.

SENet's defaults on levelled trajectories (`Trajectories`), one setting for every
sequence; the number of motions is given. EnSC, SSC and SSC-OMP take the same rows, and
trajectories as they are with a constant appended, with plain spectral clustering as
published; least squares has a graph of 10 weighted neighbours. All settings were chosen
on every third sequence by name; the error on the others stands beside that of all.

    selfexpress bench hopkins155
    selfexpress bench hopkins155 --jobs 8      sequences side by side
    selfexpress bench hopkins155 --small       layers of 128 units, for a CPU
    selfexpress bench hopkins155 --quick       small, few sequences, no record
"""

from __future__ import annotations

import argparse
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import repeat
from multiprocessing import get_context

import numpy as np
import torch

from reproduction.timing import write_record
from selfexpress import SSCOMP, EnSC, SENet, load_dataset
from selfexpress.errors import DegenerateError, DegenerateWarning
from selfexpress.features import Trajectories
from selfexpress.metrics import clustering_accuracy

CHOSEN_EVERY = 3
SMALL = {"hidden_sizes": (128, 128), "n_embedding": 128}
PLAIN = {"affinity": "symmetric", "n_eigenvectors": None}
OTHERS = {
    "EnSC, l1_ratio 0.9, gamma 20": (EnSC, {"gamma": 20.0, **PLAIN}),
    "SSC (EnSC, l1_ratio 1), gamma 90": (
        EnSC,
        {"gamma": 90.0, "l1_ratio": 1.0, **PLAIN},
    ),
    "least squares (EnSC, l1_ratio 0), gamma 10": (
        EnSC,
        {
            "gamma": 10.0,
            "l1_ratio": 0.0,
            "affinity": "weighted_neighbors",
            "n_neighbors": 10,
        },
    ),
    "SSC-OMP, 4": (SSCOMP, {"n_nonzero": 4}),
}


def with_constant(rows):
    """Return trajectories as they are, and 1, as the affine constraint asks."""
    return np.concatenate([rows, np.ones((len(rows), 1))], axis=1)


def levelled(rows):
    return Trajectories().fit_transform(rows)


def error_of(sequence, prepare, method, settings):
    """Return the share of wrong points of a sequence."""
    # Graphs in too many pieces are part of what is measured.
    warnings.simplefilter("ignore", DegenerateWarning)
    rows = prepare(np.asarray(sequence.samples))
    n_motions = len(np.unique(sequence.labels))
    try:
        labels = method(n_motions, **settings).fit(rows).labels_
    except DegenerateError:
        labels = np.zeros(len(rows), dtype=int)
    return 1 - clustering_accuracy(sequence.labels, labels)


def result_of(run, sequences, chosen, *how):
    """Return errors of all sequences, their means, and seconds in all."""
    start = time.perf_counter()
    repeated = (repeat(what) for what in how)
    errors = run(error_of, sequences.values(), *repeated)
    found = dict(zip(sequences, errors, strict=True))
    seconds = time.perf_counter() - start
    means = summary(sequences, found, chosen)
    return {"summary": means, "seconds": seconds, "errors": found}


def summary(sequences, found, chosen):
    """Return means of the errors over what they are commonly reported for."""
    names = sorted(sequences)
    motions = {name: len(np.unique(sequences[name].labels)) for name in names}
    parts = {
        "all": names,
        "two motions": [name for name in names if motions[name] == 2],
        "three motions": [name for name in names if motions[name] == 3],
        "chosen on": [name for name in names if name in chosen],
        "held out": [name for name in names if name not in chosen],
    }
    means = {
        part: float(np.mean([found[name] for name in members]))
        for part, members in parts.items()
        if members
    }
    return means | {"median": float(np.median(list(found.values())))}


@contextmanager
def workers(n_jobs):
    """Give a ``map`` that works here, or in processes side by side."""
    if n_jobs == 1:
        yield map
        return
    with ProcessPoolExecutor(n_jobs, get_context("spawn")) as pool:
        yield pool.map


def show(title, result) -> None:
    figures = ", ".join(
        f"{part} {100 * value:.2f} %" for part, value in result["summary"].items()
    )
    print(f"{title}: {figures} ({result['seconds']:.0f} s)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small, no record")
    parser.add_argument("--small", action="store_true", help="a smaller network")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--data", help="folder of the data sets")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    every = load_dataset("hopkins155", root=options.data).sequences
    names = [name for name in sorted(every) if name != "dancing"]
    sequences = {name: every[name] for name in names[:: 20 if options.quick else 1]}
    chosen = set(names[::CHOSEN_EVERY])
    sizes = SMALL if options.quick or options.small else {}
    if options.quick:
        sizes = {**sizes, "max_iter": 300}
    with workers(options.jobs) as run:
        runs = []
        for seed in range(1 if options.quick else options.seeds):
            settings = {"random_state": seed, "device": device, **sizes}
            result = result_of(run, sequences, chosen, levelled, SENet, settings)
            show(f"SENet, seed {seed}", result)
            runs.append({"seed": seed, **result})
        others = {}
        for title, (method, options_of) in OTHERS.items():
            settings = {"random_state": 0, "device": device, **options_of}
            for kind, rows in (("levelled", levelled), ("as they are", with_constant)):
                result = result_of(run, sequences, chosen, rows, method, settings)
                show(f"{title}, {kind}", result)
                others[f"{title}, {kind}"] = result
    parts = runs[0]["summary"]
    results = {
        "n_sequences": len(sequences),
        "senet": {
            "mean": {p: float(np.mean([r["summary"][p] for r in runs])) for p in parts},
            "runs": runs,
        },
        "others": others,
    }
    print(f"SENet, mean error of {len(runs)} seeds: {results['senet']['mean']}")
    if not options.quick:
        config = {
            "n_seeds": options.seeds,
            "sizes": sizes or "defaults",
            "jobs": options.jobs,
        }
        claim = "hopkins155-small" if options.small else "hopkins155"
        print(write_record(claim, results, config, seed=0, device=device))


if __name__ == "__main__":
    main()
