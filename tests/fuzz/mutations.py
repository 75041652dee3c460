"""Damage: changes to the bytes of a valid file, blind ones and ones that know the form.

Every function takes the content, a random generator and a second valid content to
splice with, and returns the changed content. A blind change spoils checksums and
compressed streams and mostly tests the first line of defence; one that knows the form
packs the changed content again, so that it reaches the parsers behind.
"""

from __future__ import annotations

import copy
import io
import json
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

Mutation = Callable[[bytes, np.random.Generator, bytes], bytes]

ABSURD = (0, 1, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1)
ABSURD_TEXT = (
    "0", "-1", "1", "99999999", "4294967296", "1000000000000", "9" * 30, "1e999", "nan",
)  # fmt: skip
WORDS = (
    b"float64", b"<f8", b"|O", b"<U4", b"<c16", b">i2", b"|V8", b"F32", b"BF16", b"I64",
    b"BOOL", b"F8_E4M3", b"True", b"None", b"null", b"[[[[", b"{}", b"\"", b"NaN",
    b"../../x", b"/etc/x", b"\x00", b"\xff\xfe", b"\r\n", b",,,,", b"csr", b"__proto__",
)  # fmt: skip
STRANGE_NAMES = ("../../x.npy", "/etc/x.npy", "C:\\x.npy", "", "a" * 300, "x\x00y", "é")
STRANGE_JSON: tuple[Any, ...] = (
    None, True, -1, 0, 2**40, 2**70, 1e308, float("nan"), float("inf"), "", "x", "../x",
    [], [[]], {}, [1, 2, 3], ["a"], {"a": {"b": {}}}, "9" * 5000,
)  # fmt: skip


def truncate(content: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    return content[: rng.integers(len(content) + 1)]


def extend(content: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    return content + rng.bytes(int(rng.integers(1, 64)))


def flip_bits(content: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    changed = bytearray(content)
    for place in _places(changed, rng, most=8):
        changed[place] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def set_bytes(content: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    changed = bytearray(content)
    for place in _places(changed, rng, most=8):
        changed[place] = int(rng.choice([0, 1, 0x7F, 0x80, 0xFE, 0xFF]))
    return bytes(changed)


def remove(content: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    start, stop = _range(content, rng)
    return content[:start] + content[stop:]


def repeat(content: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    start, stop = _range(content, rng)
    return content[:stop] + content[start:stop] + content[stop:]


def zero(content: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    start, stop = _range(content, rng)
    return content[:start] + bytes(stop - start) + content[stop:]


def splice(content: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    return (
        content[: rng.integers(len(content) + 1)]
        + other[int(rng.integers(len(other) + 1)) :]
    )


def absurd_integer(content: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    """Overwrite two, four or eight bytes by a number no honest file would have."""
    size = int(rng.choice([2, 4, 8]))
    value = int(rng.choice(np.array(ABSURD, dtype=np.uint64))) % 2 ** (8 * size)
    order = "little" if rng.integers(2) else "big"
    # Headers stand at the beginning and, in zip and Parquet, at the end.
    near = int(rng.integers(min(len(content), 256) + 1))
    place = near if rng.integers(2) else max(0, len(content) - near)
    return content[:place] + value.to_bytes(size, order) + content[place + size :]


def absurd_digits(content: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    """Replace a number that is written as text."""
    runs = list(re.finditer(rb"\d+", content[:20_000]))
    if not runs:
        return absurd_integer(content, rng, other)
    run = runs[int(rng.integers(len(runs)))]
    text = ABSURD_TEXT[int(rng.integers(len(ABSURD_TEXT)))].encode()
    return content[: run.start()] + text + content[run.end() :]


def strange_word(content: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    """Replace or insert a word that means something to some parser."""
    words = list(re.finditer(rb"[<>|]?[A-Za-z_][A-Za-z0-9_]*", content[:20_000]))
    word = WORDS[int(rng.integers(len(WORDS)))]
    if words and rng.integers(4):
        found = words[int(rng.integers(len(words)))]
        return content[: found.start()] + word + content[found.end() :]
    place = int(rng.integers(len(content) + 1))
    return content[:place] + word + content[place:]


BLIND: tuple[Mutation, ...] = (
    truncate, extend, flip_bits, set_bytes, remove, repeat, zero, splice,
    absurd_integer, absurd_digits, strange_word,
)  # fmt: skip


def blind(content: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    """Apply one to three blind changes."""
    for _ in range(int(rng.integers(1, 4))):
        content = BLIND[int(rng.integers(len(BLIND)))](content, rng, other)
    return content


def in_zip(content: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    """Pack the members again after one of them was changed, renamed or added."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(info, archive.read(info)) for info in archive.infolist()]
    chosen = int(rng.integers(len(members)))
    act = int(rng.integers(8))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for place, (info, data) in enumerate(members):
            fresh = zipfile.ZipInfo(info.filename)
            fresh.compress_type = info.compress_type
            if place == chosen:
                data = _changed_member(fresh, data, act, rng)
            if not (place == chosen and act == 7):
                archive.writestr(fresh, data)
    return buffer.getvalue()


def _changed_member(
    info: zipfile.ZipInfo, data: bytes, act: int, rng: np.random.Generator
) -> bytes:
    if act == 0:
        info.filename = STRANGE_NAMES[int(rng.integers(len(STRANGE_NAMES)))]
    elif act == 1:
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
    elif act == 2:
        info.compress_type = int(rng.choice([zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]))
    elif act == 3:
        info.compress_type = zipfile.ZIP_DEFLATED
        # Much from little: 16 MiB of zeros behind the true beginning.
        data = data[:200] + bytes(16 * 2**20)
    elif act < 7:
        data = blind(data, rng, data)
    return data


def in_safetensors(content: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    """Write the header again after something in it was replaced."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    strange_value(header, rng)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


def strange_value(document: Any, rng: np.random.Generator) -> None:
    """Replace, remove, rename or copy one value somewhere inside a document."""
    holders = [found for found in _holders(document) if len(found)]
    if not holders:
        return
    holder = holders[int(rng.integers(len(holders)))]
    keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    key = keys[int(rng.integers(len(keys)))]
    act = int(rng.integers(6))
    if act == 0:
        del holder[key]
    elif act == 1 and isinstance(holder, dict):
        holder[str(rng.choice(["x", "../x", "", str(key) + "x"]))] = holder.pop(key)
    elif act == 2:
        holder[key] = copy.deepcopy(holder[keys[int(rng.integers(len(keys)))]])
    elif isinstance(holder[key], str) and holder[key][:1] == "{":
        inside = json.loads(holder[key])
        strange_value(inside, rng)
        holder[key] = json.dumps(inside)
    else:
        strange = STRANGE_JSON[int(rng.integers(len(STRANGE_JSON)))]
        holder[key] = copy.deepcopy(strange)


def in_mat(content: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    """Pack an element of a MATLAB file again after it was changed."""
    parts, position = [content[:128]], 128
    while position + 8 <= len(content):
        kind, size = struct.unpack_from("<II", content, position)
        body = content[position + 8 : position + 8 + size]
        if kind == 15:
            unpacked = blind(zlib.decompress(body), rng, other)
            body = zlib.compress(unpacked)
        else:
            body = blind(body, rng, other)
        parts.append(struct.pack("<II", kind, len(body)) + body)
        position += 8 + size
    return b"".join(parts)


def _holders(document: Any) -> list[Any]:
    found = []
    if isinstance(document, dict | list):
        found.append(document)
        members = document.values() if isinstance(document, dict) else document
        for member in members:
            found += _holders(member)
    return found


def _places(content: bytearray, rng: np.random.Generator, *, most: int) -> list[int]:
    if not content:
        return []
    n_places = int(rng.integers(1, most + 1))
    # Half of the time all near the beginning, where headers are.
    end = len(content) if rng.integers(2) else min(len(content), 128)
    return [int(place) for place in rng.integers(end, size=n_places)]


def _range(content: bytes, rng: np.random.Generator) -> tuple[int, int]:
    start = int(rng.integers(len(content) + 1))
    return start, min(len(content), start + int(rng.integers(1, 64)))
