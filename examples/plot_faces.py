"""
Faces (ORL)
===========

Faces of one person lie near a subspace. ORL has 10 pictures each of 40 people, which
is too few for a network to learn from: the exact elastic net clusters them. Without
the data set, synthetic subspaces take its place.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans

from selfexpress import EnSC, load_dataset, make_subspaces
from selfexpress.errors import DataError
from selfexpress.metrics import clustering_accuracy

try:
    faces = load_dataset("orl", download=False)
    images, truth = faces.samples, faces.labels
except DataError:
    print("SELFEXPRESS_DATA has no orl: synthetic subspaces are used instead.")
    made = make_subspaces(40, dimension=3, n_features=256, n_samples=10, random_state=0)
    images, truth = made.X.reshape(-1, 16, 16), made.labels
rows = images.reshape(len(images), -1).astype(np.float32)
print(f"{len(rows)} pictures of {len(set(truth.tolist()))} people")

# %%
# Pixels will do here. k-means, which looks for centres instead of subspaces, is the
# comparison.
found = EnSC(40, gamma=50, affinity="symmetric", random_state=0).fit_predict(rows)
print(f"EnSC     accuracy {clustering_accuracy(found, truth):.3f}")
means = KMeans(40, n_init=5, random_state=0).fit_predict(rows)
print(f"k-means  accuracy {clustering_accuracy(means, truth):.3f}")

# %%
# Members of the first clusters.
figure, grid = plt.subplots(4, 6, figsize=(6, 4), layout="constrained")
for cluster, line in enumerate(grid):
    members = np.flatnonzero(found == cluster)
    for axes, member in zip(line, np.resize(members, 6), strict=True):
        axes.imshow(images[member], cmap="gray")
        axes.axis("off")
plt.show()
