"""
Motion segmentation (Hopkins155)
================================

Tracked points of a rigid motion lie in a subspace of dimension 4 or less, so that
points of a video are grouped by the object they belong to. A sequence has a few
hundred points: few enough for the exact method, :class:`selfexpress.EnSC`, which takes
a blink. :class:`selfexpress.features.Trajectories` prepares them. Without the data
set, synthetic motions take its place.
"""

import matplotlib.pyplot as plt

from selfexpress import EnSC, load_dataset, make_subspaces
from selfexpress.errors import DataError
from selfexpress.features import Trajectories
from selfexpress.metrics import clustering_accuracy

names = ("2R3RTC_g12", "cars10_g23", "cars9", "1R2RCT_A")
try:
    sequences = load_dataset("hopkins155", download=False).sequences
    problems = {name: (sequences[name].rows, sequences[name].labels) for name in names}
except DataError:
    print("SELFEXPRESS_DATA has no hopkins155: synthetic motions are used instead.")
    made = make_subspaces(3, dimension=4, n_features=60, n_samples=80, random_state=0)
    problems = {"synthetic": (made.X, made.labels)}

# %%
# Sequences are clustered one by one. Some are easy; on others a tenth of the points or
# more go to the wrong motion.
found = {}
for name, (rows, truth) in problems.items():
    n_motions = len(set(truth.tolist()))
    model = EnSC(
        n_motions, gamma=20, l1_ratio=0.9, affinity="symmetric", random_state=0
    )
    found[name] = model.fit_predict(Trajectories().fit_transform(rows))
    accuracy = clustering_accuracy(found[name], truth)
    print(
        f"{name:11s} {len(rows)} points, {n_motions} motions: accuracy {accuracy:.3f}"
    )

# %%
# Where the points of the first sequence are in its first frame, coloured by the motion
# found. The first two numbers of a trajectory are its first position.
name, labels = next(iter(found.items()))
rows = problems[name][0]
figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
axes.scatter(rows[:, 0], rows[:, 1], c=labels, s=8, cmap="tab10")
axes.set(title=f"{name}: tracked points by motion", xlabel="x", ylabel="y")
plt.show()
