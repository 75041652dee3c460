"""Motion segmentation: mean error over the 155 sequences of Hopkins155.

SENet's defaults on levelled trajectories (`Trajectories`), one setting for every
sequence; the number of motions is given. EnSC, SSC and SSC-OMP take the same rows, and
trajectories as they are with a constant appended, with plain spectral clustering as
published; least squares has a graph of 10 weighted neighbours. All settings were chosen
on every third sequence by name; the error on the others stands beside that of all.

    selfexpress bench hopkins155
    selfexpress bench hopkins155 --small       layers of 128 units, for a CPU
    selfexpress bench hopkins155 --quick       small, few sequences, no record
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import torch
from record import write_record

from selfexpress import SSCOMP, EnSC, SENet
from selfexpress.data import load
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


def errors_of(sequences, prepare, make_model):
    """Return the share of wrong points of each sequence, and seconds in all."""
    found, start = {}, time.perf_counter()
    for name, sequence in sequences.items():
        rows = prepare(np.asarray(sequence.samples))
        n_motions = len(np.unique(sequence.labels))
        try:
            labels = make_model(n_motions).fit(rows).labels_
        except DegenerateError:
            labels = np.zeros(len(rows), dtype=int)
        found[name] = 1 - clustering_accuracy(sequence.labels, labels)
    return found, time.perf_counter() - start


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
    parser.add_argument("--data", help="folder of the data sets")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    # Graphs in too many pieces are part of what is measured.
    warnings.simplefilter("ignore", DegenerateWarning)
    every = load("hopkins155", root=options.data).sequences
    names = [name for name in sorted(every) if name != "dancing"]
    sequences = {name: every[name] for name in names[:: 20 if options.quick else 1]}
    chosen = set(names[::CHOSEN_EVERY])
    sizes = SMALL if options.quick or options.small else {}
    if options.quick:
        sizes = {**sizes, "max_iter": 300}
    runs = []
    for seed in range(1 if options.quick else options.seeds):
        found, seconds = errors_of(
            sequences,
            levelled,
            lambda k, seed=seed: SENet(k, random_state=seed, device=device, **sizes),
        )
        result = {"summary": summary(sequences, found, chosen), "seconds": seconds}
        runs.append({"seed": seed, **result, "errors": found})
        show(f"SENet, seed {seed}", result)
    others = {}
    for title, (method, settings) in OTHERS.items():
        for kind, prepare in (("levelled", levelled), ("as they are", with_constant)):
            found, seconds = errors_of(
                sequences,
                prepare,
                lambda k, method=method, settings=settings: method(
                    k, random_state=0, device=device, **settings
                ),
            )
            means = summary(sequences, found, chosen)
            result = {"summary": means, "seconds": seconds}
            others[f"{title}, {kind}"] = result
            show(f"{title}, {kind}", result)
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
        config = {"n_seeds": options.seeds, "sizes": sizes or "defaults"}
        claim = "hopkins155-small" if options.small else "hopkins155"
        print(write_record(claim, results, config, seed=0, device=device))


if __name__ == "__main__":
    main()
