"""What each data set is: its files, checksums, counts, classes and citation.

Checksums are written ``algorithm:hexdigest``. They are those published with the data
set where such exist, and otherwise those of the copy that the counts were verified on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class StoredFile:
    """A file in a data set's folder, or a member of an archive there.

    Attributes
    ----------
    path : str
        Path within the folder or archive, with forward slashes.
    size : int
        Bytes of the content, unpacked; the most there may be where no checksum is.
    checksum : str
        Checksum of that content, or "" where something else vouches for it.
    part : str
        The part of the data set it belongs to, "" for all of them.
    """

    path: str
    size: int
    checksum: str = ""
    part: str = ""


@dataclass(frozen=True)
class Layout:
    """One way in which a data set may lie in its folder.

    Attributes
    ----------
    reader : str
        Name of the function that reads it, see ``selfexpress.datasets.readers``.
    files : tuple of StoredFile
        Files that must be there.
    members : tuple of StoredFile
        What is read out of them, where that is not the files themselves.
    """

    reader: str
    files: tuple[StoredFile, ...]
    members: tuple[StoredFile, ...] = ()


@dataclass(frozen=True)
class Download:
    """A file to be had from the network; an empty checksum is checked after parsing."""

    path: str
    address: str
    checksum: str = ""


@dataclass(frozen=True)
class DatasetSpec:
    """All that is known about a data set before any file is opened.

    Attributes
    ----------
    name, title, citation, home : str
    class_names : tuple of str
        Name of each label; empty where every sequence has classes of its own.
    sample_shape : tuple of int
        Shape of one sample; empty where every sequence has a width of its own.
    stored : mapping
        Records in the files of each part, in the order of the full data set.
    n_samples : int
        Samples returned for all parts together (sequences of a set of sequences).
    layouts : tuple of Layout
        Tried in this order.
    downloads : tuple of Download
        Empty where no address with a known content exists.
    refused : mapping
        Files that are recognised and not read, each with the advice to give.
    first_label : int
        The stored label that becomes 0.
    """

    name: str
    title: str
    citation: str
    home: str
    class_names: tuple[str, ...]
    sample_shape: tuple[int, ...]
    stored: Mapping[str, int]
    n_samples: int
    layouts: tuple[Layout, ...]
    downloads: tuple[Download, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    first_label: int = 0

    @property
    def splits(self) -> tuple[str, ...]:
        """Names that may be asked for as a split."""
        return tuple(dict.fromkeys((*self.stored, "full")))


LETTERS = tuple("abcdefghijklmnopqrstuvwxyz")


def _idx_spec(
    base: str, checksums: tuple[tuple[str, str], ...], **known: Any
) -> DatasetSpec:
    """Return a set that follows MNIST: md5s of each content and its gzip file."""
    names = [
        ("train-images-idx3-ubyte.gz", "train", 16 + 60_000 * 784),
        ("train-labels-idx1-ubyte.gz", "train", 8 + 60_000),
        ("t10k-images-idx3-ubyte.gz", "test", 16 + 10_000 * 784),
        ("t10k-labels-idx1-ubyte.gz", "test", 8 + 10_000),
    ]
    files, downloads = [], []
    for (path, part, size), (content, packed) in zip(names, checksums, strict=True):
        files.append(StoredFile(path, size, f"md5:{content}", part))
        downloads.append(Download(path, base + path, f"md5:{packed}"))
    return DatasetSpec(
        **known,
        sample_shape=(28, 28),
        stored={"train": 60_000, "test": 10_000},
        n_samples=70_000,
        layouts=(Layout("idx", tuple(files)),),
        downloads=tuple(downloads),
    )


# The home page stopped handing out its files; this mirror keeps the originals.
MNIST = _idx_spec(
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    (
        ("6bbc9ace898e44ae57da46a324031adb", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        ("a25bea736e30d166cdddb491f175f624", "d53e105ee54ea40749a09fcbcd1e9432"),
        ("2646ac647ad5339dbf082846283269ea", "9fb629c4189551a2d022fa330f9573f3"),
        ("27ae3e4e09519cfbb04c329615203637", "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
    name="mnist",
    title="MNIST handwritten digits",
    citation=(
        "Y. LeCun, L. Bottou, Y. Bengio and P. Haffner. Gradient-based learning "
        "applied to document recognition. Proceedings of the IEEE 86(11), 1998."
    ),
    home="http://yann.lecun.com/exdb/mnist/",
    class_names=tuple("0123456789"),
)

FASHION_MNIST = _idx_spec(
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    (
        ("f4a8712d7a061bf5bd6d2ca38dc4d50a", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        ("9018921c3c673c538a1fc5bad174d6f9", "25c81989df183df01b3e8a0aad5dffbe"),
        ("8181f5470baa50b63fa0f6fddb340f0a", "bef4ecab320f06d8554ea6380940ec79"),
        ("15d484375f8d13e6eb1aabb0c3f46965", "bb300cfdad3c16e7a12a480ee83cd310"),
    ),
    name="fashion-mnist",
    title="Fashion-MNIST articles of clothing",
    citation=(
        "H. Xiao, K. Rasul and R. Vollgraf. Fashion-MNIST: a novel image dataset for "
        "benchmarking machine learning algorithms. arXiv:1708.07747, 2017."
    ),
    home="https://github.com/zalandoresearch/fashion-mnist",
    class_names=(
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
)

_EMNIST_MD5 = "md5:58c8d27c78d21e728a6bc7b3cc06412e"
EMNIST_LOWER = DatasetSpec(
    name="emnist-lower",
    title="EMNIST lower-case handwritten letters",
    citation=(
        "G. Cohen, S. Afshar, J. Tapson and A. van Schaik. EMNIST: extending MNIST to "
        "handwritten letters. International Joint Conference on Neural Networks, 2017."
    ),
    home="https://www.nist.gov/itl/products-and-services/emnist-dataset",
    class_names=LETTERS,
    sample_shape=(28, 28),
    stored={"train": 697_932, "test": 116_323},
    n_samples=190_998,
    layouts=(
        Layout(
            "emnist",
            (StoredFile("gzip.zip", 1 << 30, _EMNIST_MD5),),
            tuple(
                StoredFile(f"emnist-byclass-{part}-{kind}-ubyte.gz", size, part=part)
                for part, n in (("train", 697_932), ("test", 116_323))
                for kind, size in (
                    ("images-idx3", 16 + n * 784),
                    ("labels-idx1", 8 + n),
                )
            ),
        ),
    ),
    downloads=(
        Download(
            "gzip.zip",
            "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
            _EMNIST_MD5,
        ),
    ),
    first_label=36,
)

_CIFAR10_MD5 = "md5:c32a1d4ab5d03f1284b67883e8d87530"
_CIFAR10_BATCHES = tuple(
    StoredFile(f"cifar-10-batches-bin/{name}.bin", 10_000 * 3073, f"md5:{md5}", part)
    for name, md5, part in (
        ("data_batch_1", "5dd7e06a14cb22eb9f671a540d1b7c25", "train"),
        ("data_batch_2", "5ea93a67294ea407fff1d09f752e9692", "train"),
        ("data_batch_3", "942cd6a4bcdd0dd3c604fbe906cb4421", "train"),
        ("data_batch_4", "ae636b3ba5c66a11e91e8cb52e771fcb", "train"),
        ("data_batch_5", "53f37980c15c3d472c316c40844f3f0d", "train"),
        ("test_batch", "803d5f7f4d78ea53de84dbe85f74fb6d", "test"),
    )
)
_CIFAR10_MOSAICS = tuple(
    StoredFile(
        batch.path.rpartition("/")[2].replace(".bin", ".webp"),
        batch.size,
        part=batch.part,
    )
    for batch in _CIFAR10_BATCHES
)
_CIFAR10_LABELS = StoredFile(
    "labels.npy",
    60_128,
    "sha256:0066c48b0955bbc1b1ba22a9133f597afe1d5ed01235d0f4f28340c9f8eb5a3c",
)
_NO_PICKLES = (
    "it holds pickles, which can run code when read; use cifar-10-binary.tar.gz "
    "from https://www.cs.toronto.edu/~kriz/cifar.html instead."
)
CIFAR10 = DatasetSpec(
    name="cifar10",
    title="CIFAR-10 colour photographs",
    citation=(
        "A. Krizhevsky. Learning multiple layers of features from tiny images. "
        "Technical report, University of Toronto, 2009."
    ),
    home="https://www.cs.toronto.edu/~kriz/cifar.html",
    class_names=(
        *("airplane", "automobile", "bird", "cat", "deer"),
        *("dog", "frog", "horse", "ship", "truck"),
    ),
    sample_shape=(3, 32, 32),
    stored={"train": 50_000, "test": 10_000},
    n_samples=60_000,
    layouts=(
        Layout("cifar-batches", _CIFAR10_BATCHES),
        Layout(
            "cifar-archive",
            # Six batches of 30,730,000 bytes and two small texts.
            (StoredFile("cifar-10-binary.tar.gz", 185_000_000, _CIFAR10_MD5),),
            _CIFAR10_BATCHES,
        ),
        Layout(
            "cifar-mosaics",
            (*_CIFAR10_MOSAICS, _CIFAR10_LABELS),
            _CIFAR10_BATCHES,
        ),
    ),
    downloads=(
        Download(
            "cifar-10-binary.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            _CIFAR10_MD5,
        ),
    ),
    refused={"cifar-10-python.tar.gz": _NO_PICKLES, "cifar-10-batches-py": _NO_PICKLES},
)


def _mat_spec(
    file: StoredFile,
    *,
    name: str,
    title: str,
    citation: str,
    class_names: tuple[str, ...],
    n_per_class: int,
) -> DatasetSpec:
    """Return a set of 32x32 grey images kept as ``fea`` and ``gnd`` in a .mat file."""
    folder = file.path.removesuffix(".mat").partition("_")[0]
    home = "http://www.cad.zju.edu.cn/home/dengcai/Data"
    n_samples = len(class_names) * n_per_class
    return DatasetSpec(
        name=name,
        title=title,
        citation=citation,
        home=f"{home}/data.html",
        class_names=class_names,
        sample_shape=(32, 32),
        stored={"full": n_samples},
        n_samples=n_samples,
        layouts=(Layout("mat", (file,)),),
        downloads=(Download(file.path, f"{home}/{folder}/{file.path}", file.checksum),),
        first_label=1,
    )


COIL20 = _mat_spec(
    StoredFile(
        "COIL20.mat",
        3_022_227,
        "sha256:2a35c105dbb327492b90389e55612bcbf39187bc7c408252239903e4ce7d6958",
    ),
    name="coil20",
    title="COIL-20 objects on a turntable",
    citation=(
        "S. A. Nene, S. K. Nayar and H. Murase. Columbia Object Image Library "
        "(COIL-20). Technical report CUCS-005-96, Columbia University, 1996."
    ),
    class_names=tuple(f"object {i}" for i in range(1, 21)),
    n_per_class=72,
)
ORL = _mat_spec(
    StoredFile(
        "ORL_32x32.mat",
        376_589,
        "sha256:c30cb53be2cab2da293eaeb35c1a7c16cad513fa14d0400ad5ed51f03e1ce7c8",
    ),
    name="orl",
    title="ORL faces",
    citation=(
        "F. S. Samaria and A. C. Harter. Parameterisation of a stochastic model for "
        "human face identification. IEEE Workshop on Applications of Computer "
        "Vision, 1994."
    ),
    class_names=tuple(f"person {i}" for i in range(1, 41)),
    n_per_class=10,
)

HOPKINS155 = DatasetSpec(
    name="hopkins155",
    title="Hopkins 155 motion segmentation",
    citation=(
        "R. Tron and R. Vidal. A benchmark for the comparison of 3-D motion "
        "segmentation algorithms. IEEE Conference on Computer Vision and Pattern "
        "Recognition, 2007."
    ),
    home="http://www.vision.jhu.edu/data/hopkins155/",
    class_names=(),
    sample_shape=(),
    stored={"full": 156},
    n_samples=156,
    layouts=(
        Layout(
            "hopkins",
            (
                StoredFile(
                    "hopkins155.npz",
                    12_214_470,
                    "sha256:63edb6e9e8203159758aced078b6bf7cc912004c50238f9add082a4be77c8166",
                ),
            ),
            (StoredFile("arrays", 32_072_612),),
        ),
    ),
    first_label=1,
)

OCR_LETTERS = DatasetSpec(
    name="ocr-letters",
    title="OCR lower-case handwritten letters",
    citation=(
        "R. H. Kassel. A comparison of approaches to on-line handwritten character "
        "recognition. PhD thesis, Massachusetts Institute of Technology, 1995; as "
        "normalised by B. Taskar, C. Guestrin and D. Koller. Max-margin Markov "
        "networks. Advances in Neural Information Processing Systems, 2003."
    ),
    home="http://ai.stanford.edu/~btaskar/ocr/",
    class_names=LETTERS,
    sample_shape=(16, 8),
    stored={"full": 52_152},
    n_samples=52_152,
    layouts=(
        Layout(
            "letters-npz",
            (
                StoredFile(
                    "ocr_letters.npz",
                    621_520,
                    "sha256:519b8f1eff758dce9ba61d38ada7b0910c889296435bd508a639a6f477c9e027",
                ),
            ),
            (StoredFile("arrays", 6_727_864),),
        ),
        Layout(
            "letters-text",
            (StoredFile("letter.data.gz", 1 << 25),),
            (
                StoredFile(
                    "images and labels",
                    52_152 * 129,
                    "sha256:d0318a5f645fc3a57bffecf8ad80b3cdb3eae15a957dc053fae09dc610892930",
                ),
            ),
        ),
    ),
    # Published without a checksum: the pixels and labels are checked once parsed.
    downloads=(
        Download(
            "letter.data.gz", "http://ai.stanford.edu/~btaskar/ocr/letter.data.gz"
        ),
    ),
)

SPECS = {
    spec.name: spec
    for spec in (
        *(MNIST, FASHION_MNIST, EMNIST_LOWER, CIFAR10),
        *(COIL20, ORL, HOPKINS155, OCR_LETTERS),
    )
}
