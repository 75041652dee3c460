"""The figures printed in the SENet paper (CVPR 2021), by table and row."""

from __future__ import annotations

# Captions of Figure 2: SRE in percent by step, on the training and the unseen half.
FIGURE_2 = {
    "train": {100: 64.0, 300: 23.0, 500: 10.0},
    "unseen": {100: 66.0, 300: 37.0, 500: 24.0},
}

# Table 1, by points of a subspace and method, in the order of TABLE_1_METRICS.
TABLE_1_METRICS = (
    "objective",
    "reconstruction",
    "penalty",
    "accuracy",
    "sre",
    "mean_connectivity",  # by the text the least over classes, by the figures the mean
)
TABLE_1: dict[int, dict[str, tuple[float, ...]]] = {
    20: {
        "ensc": (135.127, 0.107, 132.442, 72.0, 49.611, 0.178),
        "senet": (135.132, 0.109, 132.416, 71.0, 49.720, 0.178),
        "unseen": (1830.107, 72.007, 29.937, 65.0, 58.384, 0.318),
    },
    100: {
        "ensc": (559.943, 0.526, 558.009, 93.0, 27.370, 0.163),
        "senet": (559.972, 0.531, 558.022, 92.8, 27.501, 0.165),
        "unseen": (2935.424, 89.325, 702.309, 79.0, 56.897, 0.387),
    },
    200: {
        "ensc": (1053.086, 0.526, 1040.097, 96.6, 20.067, 0.155),
        "senet": (1053.369, 0.531, 1040.097, 96.0, 20.195, 0.159),
        "unseen": (17826.273, 599.099, 2848.779, 84.1, 56.256, 0.398),
    },
    1000: {
        "ensc": (4884.876, 2.095, 4832.508, 99.4, 6.493, 0.126),
        "senet": (4932.907, 2.205, 4877.781, 99.5, 9.132, 0.155),
        "unseen": (30037.012, 887.323, 7853.945, 92.3, 36.054, 0.236),
    },
    2000: {
        "ensc": (9576.154, 3.958, 9477.197, 99.7, 4.580, 0.108),
        "senet": (10025.874, 4.592, 9911.074, 99.4, 13.555, 0.201),
        "unseen": (44458.734, 1453.790, 8113.975, 97.4, 21.863, 0.220),
    },
}
# Printed values that cannot be right, and what the others of their row imply: the
# objective is 25 times the reconstruction plus the penalty. The first two repeat the
# row of N_i = 200, the last the penalty of SENet.
TABLE_1_SLIPS = {
    (100, "ensc", "reconstruction"): 0.077,
    (100, "senet", "reconstruction"): 0.078,
    (200, "ensc", "penalty"): 1039.936,
}

# Table 2: accuracy and "SRE" in percent on the test images, by rows trained on.
TABLE_2: dict[str, dict[int | None, tuple[float, float]]] = {
    "mnist": {
        None: (97.15, 4.455),  # EnSC, solved on the test images themselves
        200: (77.22, 14.260),
        500: (82.60, 8.846),
        1000: (80.87, 7.290),
        2000: (95.45, 5.131),
        5000: (95.80, 4.785),
        10_000: (96.66, 4.121),
        20_000: (96.25, 3.978),
    },
    "fashion-mnist": {
        None: (60.55, 21.712),
        200: (55.41, 26.299),
        500: (63.65, 24.430),
        1000: (70.46, 23.502),
        2000: (58.71, 22.197),
        5000: (60.67, 21.109),
        10_000: (62.92, 20.385),
        20_000: (64.64, 20.442),
    },
}

# Table 3: ACC, NMI, ARI by method and data set; None where the paper prints a dash.
Scores = tuple[float | None, float | None, float | None]
TABLE_3: dict[str, dict[str, Scores]] = {
    "k-means": {
        "mnist": (0.541, 0.507, 0.367),
        "fashion-mnist": (0.505, 0.578, 0.403),
        "cifar10": (0.525, 0.589, 0.276),
        "emnist-lower": (0.459, 0.438, 0.316),
    },
    "spectral": {
        "mnist": (0.728, 0.856, 0.667),
        "fashion-mnist": (0.625, 0.700, 0.494),
        "cifar10": (0.455, 0.574, 0.256),
        "emnist-lower": (0.662, 0.769, 0.654),
    },
    "ssc-omp": {
        "mnist": (0.928, 0.842, 0.849),
        "fashion-mnist": (0.274, 0.421, 0.196),
        "cifar10": (0.326, 0.498, 0.196),
        "emnist-lower": (0.654, 0.661, 0.634),
    },
    "ensc": {
        "mnist": (0.980, 0.945, 0.957),
        "fashion-mnist": (0.672, 0.705, 0.565),
        "cifar10": (0.613, 0.601, 0.430),
    },
    "esc": {
        "mnist": (0.971, 0.925, 0.936),
        "fashion-mnist": (0.668, 0.708, 0.556),
        "cifar10": (0.653, 0.629, 0.438),
        "emnist-lower": (0.732, 0.825, 0.759),
    },
    "senet": {
        "mnist": (0.968, 0.918, 0.931),
        "fashion-mnist": (0.697, 0.663, 0.556),
        "cifar10": (0.765, 0.655, 0.573),
        "emnist-lower": (0.721, 0.798, 0.766),
    },
}
# Deep methods of Table 3: quoted, not run by us.
TABLE_3_QUOTED: dict[str, dict[str, Scores]] = {
    "JULE": {
        "mnist": (0.964, 0.913, 0.927),
        "fashion-mnist": (0.563, 0.608, None),
        "cifar10": (0.272, 0.192, 0.138),
    },
    "DEC": {
        "mnist": (0.863, 0.834, None),
        "fashion-mnist": (0.518, 0.546, None),
        "cifar10": (0.301, 0.257, 0.161),
    },
    "DAC": {"mnist": (0.978, 0.935, 0.949), "cifar10": (0.522, 0.396, 0.306)},
    "DEPICT": {"mnist": (0.965, 0.917, None), "fashion-mnist": (0.392, 0.392, None)},
    "ClusterGAN": {
        "mnist": (0.905, 0.890, None),
        "fashion-mnist": (0.662, 0.645, None),
    },
    "DSCDAN": {"mnist": (0.978, 0.941, None), "fashion-mnist": (0.662, 0.645, None)},
    "DCCM": {"cifar10": (0.623, 0.496, 0.408)},
    "NCSC": {"mnist": (0.941, 0.861, 0.875), "fashion-mnist": (0.721, 0.686, 0.592)},
}

# Appendix, CIFAR-10, 2,000 rows to train on: ACC, NMI, ARI.
ABLATION_THRESHOLD = {True: (0.765, 0.655, 0.573), False: (0.610, 0.588, 0.424)}
# By hidden layers: ACC, NMI, ARI, SRE, means of 5 trials.
ABLATION_DEPTH = {
    1: (0.739, 0.634, 0.554, 0.304),
    2: (0.732, 0.636, 0.545, 0.306),
    3: (0.755, 0.647, 0.566, 0.308),
    4: (0.751, 0.643, 0.560, 0.308),
}

# Appendix, seconds of training and of inference on a GeForce 1080Ti, by rows.
TIMES: dict[str, dict[int, tuple[float, float]]] = {
    "mnist": {
        200: (1164.63, 300.37),
        500: (1070.80, 276.20),
        1000: (1213.36, 271.89),
        2000: (1423.43, 254.59),
        5000: (2331.42, 267.80),
        10_000: (3921.22, 282.14),
        20_000: (7316.09, 285.82),
    },
    "fashion-mnist": {
        200: (1081.53, 299.83),
        500: (1180.33, 304.13),
        1000: (1102.98, 279.98),
        2000: (1384.23, 310.21),
        5000: (2277.91, 330.74),
        10_000: (3865.35, 329.59),
        20_000: (7161.92, 343.26),
    },
    "cifar10": {
        200: (499.31, 13.53),
        500: (497.24, 12.57),
        1000: (510.09, 19.59),
        2000: (617.43, 19.32),
        5000: (892.46, 21.79),
        10_000: (1509.32, 19.27),
        20_000: (2982.29, 20.38),
    },
}
# Seconds of EnSC in all, on a Xeon E5-2630.
TIMES_ENSC = {"mnist": 10252.71, "fashion-mnist": 10583.55, "cifar10": 2237.14}
