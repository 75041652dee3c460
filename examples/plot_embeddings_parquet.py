"""
Embeddings from a Parquet file
==============================

Embeddings of text or images usually lie in a Parquet file, one column of lists. They
are read, clustered and named from there; the file may be larger than memory. The
words of four made-up topics stand for text here, embedded by how they occur together.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from selfexpress import SENet, open_rows
from selfexpress.metrics import clustering_accuracy
from selfexpress.report import plot_embedding

# %%
# Short texts, each of some words of one topic and a few of all.
topics = {
    "kitchen": "oven flour butter simmer whisk salt pan roast dough onion garlic broth",
    "sea": "anchor tide sail harbour reef crew deck current storm lighthouse net mast",
    "music": "chord tempo violin chorus melody rhythm score drum harmony key verse",
    "garden": "soil seed prune bloom hedge compost root shade moss petal spade mulch",
}
rng = np.random.default_rng(0)
every = " ".join(topics.values()).split()
texts, truth = [], []
for number, words in enumerate(topics.values()):
    for _ in range(150):
        own, other = rng.choice(words.split(), 8), rng.choice(every, 2)
        texts.append(" ".join([*own, *other]))
        truth.append(number)
counts = TfidfVectorizer().fit_transform(texts)
embeddings = TruncatedSVD(24, random_state=0).fit_transform(counts).astype("float32")

# %%
# One column of lists, as embedding services write them.
folder = Path(tempfile.mkdtemp())
table = pa.table({"text": texts, "embedding": list(embeddings)})
pq.write_table(table, folder / "texts.parquet")

# %%
# ``open_rows`` leaves the file on disk.
rows = open_rows(folder / "texts.parquet", name="embedding")
model = SENet(4, random_state=0)
model.fit(rows)
print(f"accuracy {clustering_accuracy(model.labels_, truth):.3f}")
for cluster in range(4):
    members = np.flatnonzero(model.labels_ == cluster)
    print(cluster, "|", texts[members[0]])

# %%
plot_embedding(model.embedding_, model.labels_)
plt.show()
