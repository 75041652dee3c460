"""Read damaged files one after the other, in a process that may be lost.

Called by ``run.py``. Batches come as JSON on standard input; the number of the input
at hand stands in a small mapped file, so that whoever started this process can tell
what killed it. Results go to standard output, one line of JSON a batch.

The address space may grow by a gigabyte at most, an input may take five seconds of the
processor, and an audit hook reports writes outside the folder, pickles, processes and
sockets.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import resource
import shutil
import signal
import struct
import sys
import tempfile
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from fuzz import mutations
from fuzz.targets import Target, knowing, targets

from selfexpress.errors import SelfExpressError

MOST_GROWTH = 2**30
MOST_SECONDS = 5.0
LONGEST_MESSAGE = 1500
# Stands for the number of an input while there is none yet.
PREPARING = 2**64 - 1
FORBIDDEN = ("pickle.find_class", "subprocess.Popen", "os.system", "socket.connect")
CHANGING = ("os.mkdir", "os.rename", "os.symlink", "os.link", "os.remove", "os.rmdir")


class TooSlow(BaseException):
    """Not an Exception, so that no reader can take it for damage."""


class Watch:
    """What the audit hook saw during one input."""

    def __init__(self, allowed: Path) -> None:
        self.allowed = allowed
        self.is_on = False
        self.seen: list[str] = []

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.is_on:
            return
        if event in FORBIDDEN:
            self.seen.append(event)
        elif event in CHANGING or (event == "open" and _is_writing(arguments)):
            place = Path.cwd() / os.fsdecode(arguments[0])
            if not place.is_relative_to(self.allowed) or ".." in place.parts:
                self.seen.append(f"{event} {place}")


def _is_writing(arguments: tuple[Any, ...]) -> bool:
    path, _, flags = arguments
    wants = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    return isinstance(path, str | bytes) and bool((flags or 0) & wants)


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    status = Path(sys.argv[1])
    with status.open("r+b") as stream, mmap.mmap(stream.fileno(), 16) as at_hand:
        root = Path(tempfile.mkdtemp(prefix="fuzz-"))
        try:
            _work(root, at_hand)
        finally:
            shutil.rmtree(root, ignore_errors=True)


def _work(root: Path, at_hand: mmap.mmap) -> None:
    watch = Watch(root)
    sys.addaudithook(watch)
    known = targets()
    for line in sys.stdin:
        batch = json.loads(line)
        target = known[batch["target"]]
        at_hand[:] = struct.pack("<QQ", batch["target"], PREPARING)
        sample = Sample(root / f"{batch['target']}", target)
        _limit_growth()
        counts = {"read": 0, "refused": 0}
        findings = []
        for number in range(batch["start"], batch["stop"]):
            at_hand[:] = struct.pack("<QQ", batch["target"], number)
            outcome = sample.try_input(number, batch["seed"], watch)
            if outcome in counts:
                counts[outcome] += 1
            else:
                findings.append({"input": number, "what": outcome})
        result = {**batch, **counts, "findings": findings}
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


class Sample:
    """Valid files of one target, in memory, and the folder its inputs are read in."""

    def __init__(self, root: Path, target: Target) -> None:
        self.target = target
        self.folder = root / "inside"
        self.files, self.others = (self._valid(root, seed) for seed in (0, 1))
        self._fill(self.files)
        target.read(self.folder)  # what valid files give is no matter of ours

    def _valid(self, root: Path, seed: int) -> dict[str, bytes]:
        folder = root / f"valid{seed}"
        if not folder.exists():
            folder.mkdir(parents=True)
            self.target.write(folder, seed)
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }

    def _fill(self, files: dict[str, bytes]) -> None:
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def try_input(self, number: int, seed: int, watch: Watch) -> str:
        """Return "read", "refused" or what went wrong."""
        key = zlib.crc32(self.target.name.encode())
        rng = np.random.default_rng([seed, key, number])
        name = list(self.files)[int(rng.integers(len(self.files)))]
        content = damaged(Path(name), self.files[name], self.others.get(name, b""), rng)
        (self.folder / name).write_bytes(content)
        before = _listing(self.folder.parent)
        watch.seen.clear()
        watch.is_on = True
        try:
            outcome = _outcome(self.target, self.folder)
        finally:
            watch.is_on = False
        if watch.seen:
            outcome = f"side effect: {watch.seen[:3]}"
        elif _listing(self.folder.parent) != before:
            outcome = "a file appeared or vanished"
        self._fill({name: self.files[name]})
        return outcome


def damaged(
    path: Path, content: bytes, other: bytes, rng: np.random.Generator
) -> bytes:
    """Return the content after one of the changes that suit the file."""
    change = knowing(path) if rng.integers(3) else mutations.blind
    try:
        return change(content, rng, other)
    except (ValueError, OverflowError, UnicodeError):
        # The packing library refused to write what was asked of it.
        return mutations.blind(content, rng, other)


def _outcome(target: Target, folder: Path) -> str:
    try:
        with _time_limit():
            target.read(folder)
    except SelfExpressError as error:
        return _judged(error)
    except TooSlow:
        return f"slower than {MOST_SECONDS} s"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    return "read"


def _judged(error: SelfExpressError) -> str:
    """Return "refused" for one line of printable text that hides no lack of memory."""
    message = str(error)
    cause: BaseException | None = error
    while cause is not None:
        # Arrow asks for what a damaged buffer claims, and says that it got none.
        is_arrow = type(cause).__module__.startswith("pyarrow")
        if isinstance(cause, MemoryError) and not is_arrow:
            return f"allocation: {str(cause)[:200]}"
        cause = cause.__cause__ or cause.__context__
    if len(message) > LONGEST_MESSAGE or re.search(r"[\x00-\x1f\x7f]", message):
        return f"unfit message: {message[:300]!r}"
    return "refused"


@contextmanager
def _time_limit() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooSlow

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _limit_growth() -> None:
    text = Path("/proc/self/status").read_text()
    used = 1024 * int(text.split("VmSize:")[1].split()[0])
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_GROWTH, most))


def _listing(folder: Path) -> set[str]:
    return {f"{place}/{n}" for place, _, names in os.walk(folder) for n in names}


if __name__ == "__main__":
    main()
