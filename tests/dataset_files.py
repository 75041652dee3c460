"""Small data sets in the true layouts of the published ones.

Each ``write_*`` function makes the files under ``root`` and returns the description
that fits them together with the samples and labels that must be read back.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import tarfile
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from selfexpress.datasets.registry import SPECS, DatasetSpec, Layout, StoredFile


@dataclass(frozen=True, eq=False)
class Written:
    """A description, the folder it describes, and what must be read from there."""

    spec: DatasetSpec
    folder: Path
    samples: dict[str, np.ndarray]
    labels: dict[str, np.ndarray]


def md5(content: bytes) -> str:
    return f"md5:{hashlib.md5(content).hexdigest()}"


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def idx_bytes(array: np.ndarray) -> bytes:
    """Write the IDX format down independently of the package's parser."""
    header = bytes([0, 0, 8, array.ndim])
    return (
        header + b"".join(struct.pack(">I", n) for n in array.shape) + array.tobytes()
    )


def write_mnist(root: Path, seed: int, n_train: int = 7, n_test: int = 4) -> Written:
    rng = np.random.default_rng(seed)
    folder = root / "mnist"
    folder.mkdir(parents=True)
    counts = {"train": n_train, "test": n_test}
    samples = {p: _noise(rng, n, 28, 28) for p, n in counts.items()}
    labels = {p: rng.integers(0, 10, n, dtype=np.uint8) for p, n in counts.items()}
    files = []
    for file in SPECS["mnist"].layouts[0].files:
        of_kind = samples if "images" in file.path else labels
        content = idx_bytes(of_kind[file.part])
        (folder / file.path).write_bytes(gzip.compress(content))
        files.append(replace(file, size=len(content), checksum=md5(content)))
    spec = replace(
        SPECS["mnist"],
        stored=counts,
        n_samples=n_train + n_test,
        layouts=(Layout("idx", tuple(files)),),
    )
    return Written(spec, folder, samples, labels)


def write_emnist(
    root: Path, seed: int, *, prefix: str = "gzip/", n_train: int = 60, n_test: int = 30
) -> Written:
    rng = np.random.default_rng(seed)
    folder = root / "emnist-lower"
    folder.mkdir(parents=True)
    counts = {"train": n_train, "test": n_test}
    stored = {p: _noise(rng, n, 28, 28) for p, n in counts.items()}
    labels = {p: rng.integers(0, 62, n, dtype=np.uint8) for p, n in counts.items()}
    members = {
        f"{prefix}{file.path}": gzip.compress(
            idx_bytes((stored if "images" in file.path else labels)[file.part])
        )
        for file in SPECS["emnist-lower"].layouts[0].members
    }
    # The published zip holds the other divisions of EMNIST as well.
    members[f"{prefix}emnist-digits-test-labels-idx1-ubyte.gz"] = b"not looked at"
    write_zip(folder / "gzip.zip", members)
    lower = {p: labels[p] >= 36 for p in counts}
    spec = replace(
        SPECS["emnist-lower"],
        stored=counts,
        n_samples=int(sum(keep.sum() for keep in lower.values())),
    )
    return Written(
        with_checksum(spec, folder / "gzip.zip"),
        folder,
        {p: stored[p][lower[p]].transpose(0, 2, 1) for p in counts},
        {p: labels[p][lower[p]].astype(int) - 36 for p in counts},
    )


def write_cifar(root: Path, seed: int, *, layout: str, n: int = 9) -> Written:
    """Write CIFAR-10 as ``cifar-batches``, ``cifar-archive`` or ``cifar-mosaics``."""
    rng = np.random.default_rng(seed)
    folder = root / "cifar10"
    (folder / "cifar-10-batches-bin").mkdir(parents=True)
    images = [_noise(rng, n, 3, 32, 32) for _ in range(6)]
    labels = [rng.integers(0, 10, n, dtype=np.uint8) for _ in range(6)]
    contents = [cifar_records(i, y) for i, y in zip(images, labels, strict=True)]
    batches = tuple(
        replace(file, size=len(content), checksum=md5(content))
        for file, content in zip(
            SPECS["cifar10"].layouts[0].files, contents, strict=True
        )
    )
    writers = {
        "cifar-batches": _write_batches,
        "cifar-archive": _write_archive,
        "cifar-mosaics": _write_mosaics,
    }
    spec = replace(
        SPECS["cifar10"],
        stored={"train": 5 * n, "test": n},
        n_samples=6 * n,
        layouts=(writers[layout](folder, batches, contents),),
    )
    return Written(
        spec,
        folder,
        {"train": np.concatenate(images[:5]), "test": images[5]},
        {"train": np.concatenate(labels[:5]), "test": labels[5]},
    )


def write_mat(root: Path, seed: int, n_per_class: int = 2) -> Written:
    from scipy.io import savemat

    rng = np.random.default_rng(seed)
    folder = root / "orl"
    folder.mkdir(parents=True)
    labels = np.repeat(np.arange(40), n_per_class)
    images = _noise(rng, len(labels), 32, 32)
    columns_first = images.transpose(0, 2, 1).reshape(len(images), -1)
    savemat(
        folder / "ORL_32x32.mat",
        {"fea": columns_first, "gnd": (labels + 1).astype(np.uint8)[:, None]},
        do_compression=True,
    )
    spec = replace(SPECS["orl"], stored={"full": len(labels)}, n_samples=len(labels))
    spec = with_checksum(spec, folder / "ORL_32x32.mat")
    return Written(spec, folder, {"full": images}, {"full": labels})


def write_letters_npz(root: Path, seed: int, n: int = 50) -> Written:
    images, labels = _letters(seed, n)
    folder = root / "ocr-letters"
    folder.mkdir(parents=True)
    np.savez_compressed(folder / "ocr_letters.npz", images=images, labels=labels)
    spec = replace(SPECS["ocr-letters"], stored={"full": n}, n_samples=n)
    spec = with_checksum(spec, folder / "ocr_letters.npz", layout=0)
    return Written(spec, folder, {"full": images}, {"full": labels})


def write_letters_text(root: Path, seed: int, n: int = 50) -> Written:
    images, labels = _letters(seed, n)
    folder = root / "ocr-letters"
    folder.mkdir(parents=True)
    (folder / "letter.data.gz").write_bytes(gzip.compress(letters_text(images, labels)))
    checksum = sha256(images.tobytes() + labels.tobytes())
    (npz, text) = SPECS["ocr-letters"].layouts
    text = replace(text, members=(replace(text.members[0], checksum=checksum),))
    spec = replace(
        SPECS["ocr-letters"],
        stored={"full": n},
        n_samples=n,
        layouts=(npz, text),
    )
    return Written(spec, folder, {"full": images}, {"full": labels})


def letters_text(images: np.ndarray, labels: np.ndarray) -> bytes:
    """Write id, letter, next id, word, position, fold, then 128 pixels and a tab."""
    lines = []
    for i, (image, label) in enumerate(zip(images, labels, strict=True), start=1):
        columns = [str(i), chr(97 + label), str(i + 1), "1", str(i), str(i % 10)]
        lines.append("\t".join([*columns, *map(str, image.ravel())]) + "\t\n")
    return "".join(lines).encode()


def write_hopkins(root: Path, seed: int, n_sequences: int = 3) -> Written:
    rng = np.random.default_rng(seed)
    folder = root / "hopkins155"
    folder.mkdir(parents=True)
    arrays, samples, labels = {}, {}, {}
    for i in range(n_sequences):
        n_points, n_frames, name = 11 + i, 4 + i, f"sequence{i}"
        tracks = np.ones((3, n_points, n_frames))
        tracks[:2] = rng.uniform(-1, 1, (2, n_points, n_frames))
        motions = np.concatenate([[1, 2, 3], rng.integers(1, 4, n_points - 3)])
        arrays[f"{name}__x"], arrays[f"{name}__s"] = tracks, motions.astype(np.uint8)
        samples[name] = np.array(
            [
                [
                    tracks[axis, point, frame]
                    for frame in range(n_frames)
                    for axis in (0, 1)
                ]
                for point in range(n_points)
            ]
        )
        labels[name] = motions - 1
    np.savez_compressed(folder / "hopkins155.npz", **arrays)
    spec = replace(
        SPECS["hopkins155"],
        stored={"full": n_sequences},
        n_samples=n_sequences,
    )
    spec = with_checksum(spec, folder / "hopkins155.npz")
    return Written(spec, folder, samples, labels)


WRITERS = {
    "idx": write_mnist,
    "emnist": write_emnist,
    "cifar-batches": lambda root, seed: write_cifar(root, seed, layout="cifar-batches"),
    "cifar-archive": lambda root, seed: write_cifar(root, seed, layout="cifar-archive"),
    "cifar-mosaics": lambda root, seed: write_cifar(root, seed, layout="cifar-mosaics"),
    "mat": write_mat,
    "letters-npz": write_letters_npz,
    "letters-text": write_letters_text,
}


def with_checksum(spec: DatasetSpec, path: Path, *, layout: int = 0) -> DatasetSpec:
    """Return ``spec`` with the size and checksum of the one file that it names."""
    content = path.read_bytes()
    chosen = spec.layouts[layout]
    algorithm = chosen.files[0].checksum.partition(":")[0]
    checksum = {"md5": md5, "sha256": sha256}[algorithm](content)
    file = replace(chosen.files[0], size=len(content), checksum=checksum)
    layouts = list(spec.layouts)
    layouts[layout] = replace(chosen, files=(file,))
    return replace(spec, layouts=tuple(layouts))


def write_zip(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def tar_bytes(members: list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def cifar_records(images: np.ndarray, labels: np.ndarray) -> bytes:
    pairs = zip(images, labels, strict=True)
    return b"".join(bytes([label]) + image.tobytes() for image, label in pairs)


def _write_batches(
    folder: Path, batches: tuple[StoredFile, ...], contents: list[bytes]
) -> Layout:
    for batch, content in zip(batches, contents, strict=True):
        (folder / batch.path).write_bytes(content)
    return Layout("cifar-batches", batches)


def _write_archive(
    folder: Path, batches: tuple[StoredFile, ...], contents: list[bytes]
) -> Layout:
    members = [(tarfile.TarInfo("cifar-10-batches-bin/readme.html"), b"read me")]
    for batch, content in zip(batches, contents, strict=True):
        members.append((tarfile.TarInfo(batch.path), content))
    content = gzip.compress(tar_bytes(members))
    (folder / "cifar-10-binary.tar.gz").write_bytes(content)
    limit = sum(batch.size for batch in batches) + 20_000
    file = StoredFile("cifar-10-binary.tar.gz", limit, md5(content))
    return Layout("cifar-archive", (file,), batches)


def _write_mosaics(
    folder: Path, batches: tuple[StoredFile, ...], contents: list[bytes]
) -> Layout:
    from PIL import Image

    files, all_labels = [], []
    for batch, content in zip(batches, contents, strict=True):
        records = np.frombuffer(content, np.uint8).reshape(-1, 3073)
        side = int(len(records) ** 0.5)
        mosaic = np.zeros((32 * side, 32 * side, 3), np.uint8)
        for i, record in enumerate(records):
            down, across = 32 * (i // side), 32 * (i % side)
            image = record[1:].reshape(3, 32, 32).transpose(1, 2, 0)
            mosaic[down : down + 32, across : across + 32] = image
        name = batch.path.rpartition("/")[2].replace(".bin", ".webp")
        Image.fromarray(mosaic).save(folder / name, lossless=True)
        files.append(StoredFile(name, batch.size, part=batch.part))
        all_labels.append(records[:, 0])
    np.save(folder / "labels.npy", np.concatenate(all_labels))
    content = (folder / "labels.npy").read_bytes()
    labels_file = StoredFile("labels.npy", len(content), sha256(content))
    return Layout("cifar-mosaics", (*files, labels_file), batches)


def _letters(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 2, (n, 16, 8), dtype=np.uint8)
    return images, rng.integers(0, 26, n, dtype=np.uint8)


def _noise(rng: np.random.Generator, *shape: int) -> np.ndarray:
    # Few values, so that compressed mosaics stay below the size of their pixels.
    return rng.integers(0, 64, shape, dtype=np.uint8)
