from __future__ import annotations

import gzip
import io
import stat
import tarfile
import tracemalloc
import zipfile
import zlib

import dataset_files
import numpy as np
import pytest

from selfexpress.datasets.archives import (
    check_zip_members,
    open_zip_member,
    parse_npy,
    read_npz,
    read_tar_members,
)
from selfexpress.datasets.verified import BoundedReader
from selfexpress.errors import DataError

OUTSIDE = ["../evil", "a/../../evil", "/etc/evil", "C:evil", "..\\evil", "\\evil"]
MEGABYTE = 1 << 20


def npy_bytes(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def npy_with_header(header: str, n_bytes: int) -> bytes:
    text = header.encode().ljust(117) + b"\n"
    return (
        b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(n_bytes)
    )


def npz_bytes(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def zip_bytes(*infos: zipfile.ZipInfo, content: bytes = b"x") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for info in infos:
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def link(name: str, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd"
    return member


def read_small_tar(content: bytes, *, limit: int = MEGABYTE) -> dict[str, bytes]:
    return read_tar_members(
        io.BytesIO(content), {"folder/a": 3, "folder/b": 4}, limit=limit, source="t.tar"
    )


def small_tar(*extra: tarfile.TarInfo) -> bytes:
    members = [(member, b"") for member in extra]
    wanted = {"folder/a": b"abc", "folder/b": b"defg", "folder/readme": b"read me"}
    members += [(tarfile.TarInfo(name), content) for name, content in wanted.items()]
    return dataset_files.tar_bytes(members)


def peak_bytes_while_refused(read, match: str) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=match):
            read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_tar_members_are_read_by_name_and_others_left_alone():
    assert read_small_tar(small_tar()) == {"folder/a": b"abc", "folder/b": b"defg"}


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_tar_with_a_name_outside_it_is_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(DataError, match="is a path outside the archive"):
        read_small_tar(small_tar(tarfile.TarInfo(name)))

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
)
def test_a_tar_with_a_link_or_device_is_refused(kind):
    with pytest.raises(DataError, match="'folder/a' is a link or device"):
        read_small_tar(small_tar(link("folder/a", kind)))


def test_a_tar_without_the_members_or_with_other_sizes_is_refused():
    without = dataset_files.tar_bytes([(tarfile.TarInfo("folder/a"), b"abc")])
    longer = dataset_files.tar_bytes([(tarfile.TarInfo("folder/a"), b"abcd")])

    with pytest.raises(DataError, match="lacks folder/b"):
        read_small_tar(without)
    with pytest.raises(DataError, match="must have 3 bytes, got 4"):
        read_small_tar(longer)


def test_a_tar_that_unpacks_to_more_than_the_limit_is_refused_in_little_memory():
    bomb = gzip.compress(
        dataset_files.tar_bytes([(tarfile.TarInfo("zeros"), bytes(64 * MEGABYTE))])
    )
    stream = gzip.GzipFile(fileobj=io.BytesIO(bomb))

    peak = peak_bytes_while_refused(
        lambda: read_tar_members(
            stream, {"a": 1}, limit=2 * MEGABYTE, source="bomb.tar"
        ),
        "at most 2097152 bytes",
    )

    assert peak < 16 * MEGABYTE


def test_a_tar_whose_header_announces_terabytes_is_refused_in_little_memory():
    member = tarfile.TarInfo("folder/a")
    member.size = 1 << 42
    long_name = tarfile.TarInfo("long")
    long_name.type, long_name.size = tarfile.GNUTYPE_LONGNAME, 1 << 42
    for header in (member, long_name):
        content = header.tobuf(tarfile.GNU_FORMAT) + bytes(2048)
        assert peak_bytes_while_refused(
            lambda c=content: read_small_tar(c), "t.tar"
        ) < (8 * MEGABYTE)


def test_a_tar_with_a_multitude_of_members_is_refused():
    crowd = [tarfile.TarInfo(f"folder/{i}") for i in range(1000)]

    with pytest.raises(DataError, match="at most 64 members"):
        read_small_tar(small_tar(*crowd))


@pytest.mark.parametrize("content", [b"", b"no tar at all", bytes(2048)])
def test_what_is_no_tar_is_refused(content):
    with pytest.raises(DataError, match=r"t\.tar must"):
        read_small_tar(content)


@pytest.mark.parametrize("prefix", ["", "gzip/"])
def test_a_zip_member_is_found_in_the_root_or_the_folder(prefix):
    content = zip_bytes(zipfile.ZipInfo(f"{prefix}member"), content=b"hello")

    with (
        zipfile.ZipFile(io.BytesIO(content)) as archive,
        open_zip_member(archive, "member", folders=("gzip",), source="z") as stream,
    ):
        assert stream.read() == b"hello"


@pytest.mark.parametrize("names", [[], ["other/member"], ["member", "gzip/member"]])
def test_a_zip_must_hold_the_member_once(names):
    content = zip_bytes(*(zipfile.ZipInfo(name) for name in names))

    with (
        zipfile.ZipFile(io.BytesIO(content)) as archive,
        pytest.raises(DataError, match="must hold one member member, found"),
        open_zip_member(archive, "member", folders=("gzip",), source="z"),
    ):
        pass


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_zip_with_a_name_outside_it_is_refused(name):
    content = zip_bytes(zipfile.ZipInfo(name))

    with (
        zipfile.ZipFile(io.BytesIO(content)) as archive,
        pytest.raises(DataError, match="is a path outside the archive"),
    ):
        check_zip_members(archive, source="z")


def test_a_zip_with_a_symbolic_link_is_refused():
    info = zipfile.ZipInfo("images.npy")
    info.create_system = 3
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    content = zip_bytes(info, content=b"/etc/passwd")

    with pytest.raises(DataError, match=r"'images\.npy' is a link"):
        read_npz(content, limit=MEGABYTE, source="linked.npz")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_that_cannot_be_unpacked_piece_by_piece_is_refused(method):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr("zeros.npy", npy_bytes(np.zeros(100)))

    with pytest.raises(DataError, match="compressed oddly"):
        read_npz(buffer.getvalue(), limit=MEGABYTE, source="odd.npz")


def test_arrays_of_an_npz_are_read_as_numpy_reads_them(seed):
    rng = np.random.default_rng(seed)
    arrays = {
        "whole": rng.integers(0, 256, (4, 3, 2), dtype=np.uint8),
        "real": rng.normal(size=(5, 2)),
        "turned": np.asfortranarray(rng.normal(size=(3, 4)).astype(np.float32)),
        "scalar": np.array(7, np.int16),
        "empty": np.zeros((0, 3)),
    }

    read = read_npz(npz_bytes(**arrays), limit=MEGABYTE, source="a.npz")

    assert read.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(read[name], array)
        assert read[name].dtype == array.dtype


def test_an_npz_that_announces_more_than_the_limit_is_refused_in_little_memory():
    bomb = npz_bytes(zeros=np.zeros(64 * MEGABYTE, np.uint8))

    peak = peak_bytes_while_refused(
        lambda: read_npz(bomb, limit=MEGABYTE, source="bomb.npz"), "but announces"
    )

    assert len(bomb) < MEGABYTE
    assert peak < 4 * MEGABYTE


def test_an_npz_that_lies_about_its_size_is_refused_in_little_memory():
    bomb = npz_bytes(zeros=np.zeros(64 * MEGABYTE, np.uint8))
    true_size = (64 * MEGABYTE + 128).to_bytes(4, "little")
    assert true_size in bomb
    lie = bomb.replace(true_size, (1000).to_bytes(4, "little"))

    peak = peak_bytes_while_refused(
        lambda: read_npz(lie, limit=MEGABYTE, source="bomb.npz"), "bomb.npz"
    )

    assert peak < 8 * MEGABYTE


@pytest.mark.parametrize(
    ("header", "n_bytes"),
    [
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }", 8),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }", 8),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -1), }", 8),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }", 8),
        ("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", 8),
        ("{'descr': '|S8', 'fortran_order': False, 'shape': (1,), }", 8),
        ("{'descr': [('a', '|O')], 'fortran_order': False, 'shape': (1,), }", 8),
        ("{'descr': '(2,)<f4', 'fortran_order': False, 'shape': (1,), }", 8),
        ("{'descr': '<f8', 'fortran_order': 3, 'shape': (1,), }", 8),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': ('a',), }", 8),
        ("{'descr': '<f8', 'fortran_order': False}", 8),
        ("__import__('os').abort()", 8),
        ("((((((((((((((((", 8),
        ("", 8),
    ],
)
def test_an_npy_with_a_strange_header_is_refused_in_little_memory(header, n_bytes):
    content = npy_with_header(header, n_bytes)

    peak = peak_bytes_while_refused(
        lambda: parse_npy(content, source="strange.npy"), "strange.npy must"
    )

    assert peak < MEGABYTE


def test_the_header_used_above_is_sound_when_its_text_is():
    header = "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }"

    assert parse_npy(npy_with_header(header, 8), source="a.npy").tolist() == [0.0]


@pytest.mark.parametrize(
    "content", [b"", b"\x93NUMPY", b"\x93NUMPY\x09\x00" + bytes(99)]
)
def test_what_is_no_npy_is_refused(content):
    with pytest.raises(
        DataError, match=r"a\.npy must be a \.npy file of plain numbers"
    ):
        parse_npy(content, source="a.npy")


def test_a_pickle_is_never_read():
    content = npy_bytes(np.arange(3))
    objects = io.BytesIO()
    np.save(objects, np.array([{"a": 1}, None], dtype=object), allow_pickle=True)

    assert parse_npy(content, source="a.npy").tolist() == [0, 1, 2]
    with pytest.raises(DataError, match=r"must be a \.npy file of plain numbers"):
        parse_npy(objects.getvalue(), source="a.npy")


def test_a_bounded_reader_hands_out_the_limit_and_not_a_byte_more():
    exact = BoundedReader(io.BytesIO(bytes(10)), 10, source="s")
    assert exact.read(100) == bytes(10)
    assert exact.read(100) == b""

    longer = BoundedReader(io.BytesIO(bytes(11)), 10, source="s")
    with pytest.raises(DataError, match="at most 10 bytes"):
        longer.read(100)


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """Overwrite a few bytes, cut the end off, or repeat a piece."""
    changed = bytearray(content)
    kind = rng.integers(3)
    if kind == 0:
        for _ in range(int(rng.integers(1, 9))):
            changed[rng.integers(len(changed))] = rng.integers(256)
    elif kind == 1:
        del changed[rng.integers(len(changed)) :]
    else:
        start, stop = np.sort(rng.integers(len(changed), size=2))
        changed[start:start] = changed[start:stop]
    return bytes(changed)


def test_mutated_archives_raise_our_error_or_nothing(seed):
    rng = np.random.default_rng(seed)
    arrays = {"images": rng.integers(0, 256, (9, 4), dtype=np.uint8)}
    readers = {
        "tar": (small_tar(), read_small_tar),
        "npy": (npy_bytes(arrays["images"]), lambda c: parse_npy(c, source="npy")),
        "npz": (
            npz_bytes(**arrays),
            lambda c: read_npz(c, limit=MEGABYTE, source="npz"),
        ),
    }
    n_refused = dict.fromkeys(readers, 0)
    for name, (content, read) in readers.items():
        for _ in range(400):
            try:
                read(mutated(content, rng))
            except DataError:
                n_refused[name] += 1

    # A tar is mostly padding, in which a changed byte means nothing.
    assert n_refused["tar"] > 30
    assert n_refused["npy"] > 300
    assert n_refused["npz"] > 300


def test_a_gzip_stream_with_flipped_bits_raises_our_error(seed):
    rng = np.random.default_rng(seed)
    content = gzip.compress(small_tar())
    for _ in range(200):
        stream = gzip.GzipFile(fileobj=io.BytesIO(mutated(content, rng)))
        try:
            members = read_tar_members(
                stream, {"folder/a": 3}, limit=MEGABYTE, source="t.tar.gz"
            )
        except DataError:
            continue
        # A changed header field of gzip alone may pass, its content then does not.
        assert zlib.crc32(members["folder/a"]) == zlib.crc32(b"abc")
