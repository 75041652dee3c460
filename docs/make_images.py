"""Draw the pictures of README and documentation from a real run.

    python docs/make_images.py

clusters the 1,797 handwritten digits that scikit-learn ships and writes
``docs/images/digits.png``: what SENet finds, without having seen a label.
"""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure
from sklearn.datasets import load_digits

from selfexpress import SENet
from selfexpress.metrics import clustering_accuracy
from selfexpress.report import plot_coefficients, plot_confusion, plot_embedding

FOLDER = Path(__file__).parent / "images"


def main() -> None:
    X, truth = load_digits(return_X_y=True)
    model = SENet(10, hidden_sizes=(256, 256), n_embedding=256, random_state=0)
    labels = model.fit_predict(X)
    accuracy = clustering_accuracy(labels, truth)

    figure = Figure(figsize=(12, 4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    plot_coefficients(model.coefficients_, labels, axes=left)
    plot_embedding(model.embedding_, labels, axes=middle)
    plot_confusion(labels, truth, axes=right)
    left.set_title("coefficients |C|, sorted by cluster")
    middle.set_title("spectral embedding, coloured by cluster")
    right.set_title(f"clusters and true digits, accuracy {accuracy:.3f}")
    FOLDER.mkdir(exist_ok=True)
    figure.savefig(FOLDER / "digits.png", dpi=80)
    print(f"accuracy {accuracy:.4f}, seconds {model.timings_}")


if __name__ == "__main__":
    main()
