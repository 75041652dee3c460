"""
Handwritten digits, with a pipeline
===================================

Small images become features, features become clusters, and new images are assigned
without clustering again. The 1,797 digits of 8 x 8 pixels ship with scikit-learn.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from selfexpress import SENet
from selfexpress.features import Whitening
from selfexpress.metrics import clustering_accuracy, normalized_mutual_info
from selfexpress.report import plot_coefficients, plot_confusion

X, truth = load_digits(return_X_y=True)
X = Whitening(32).fit_transform(X)
is_new = truth.cumsum() % 4 == 0
model = SENet(10, random_state=0)
labels = model.fit_predict(X[~is_new])
print(f"accuracy {clustering_accuracy(labels, truth[~is_new]):.3f}")
print(f"NMI      {normalized_mutual_info(labels, truth[~is_new]):.3f}")

# %%
# Images that the model has never seen are assigned to the same clusters.
assigned = model.predict(X[is_new])
print(f"accuracy of new images {clustering_accuracy(assigned, truth[is_new]):.3f}")

# %%
# Coefficients sorted by cluster are bright where images express their own kind.
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
plot_coefficients(model.coefficients_, labels, axes=left)
plot_confusion(labels, truth[~is_new], axes=right)
plt.show()
