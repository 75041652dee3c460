"""Read many damaged files with every reader and report what must not happen.

``make fuzz`` runs 100,000 inputs and writes a record. Every reader works in a process
of its own, whose memory may grow by a gigabyte at most, with five seconds of the
processor for an input; an audit hook reports writes outside the folder, pickles,
processes and sockets. An input is a function of the seed, the reader and its number,
so that a finding can be made again::

    python tests/fuzz/run.py --only rows-mat --first 4711 --inputs 1
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import re
import resource
import signal
import sys
import tempfile
import time
import warnings
import zlib
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import numpy as np  # noqa: E402
from fuzz import mutations  # noqa: E402
from fuzz.targets import Target, knowing, targets  # noqa: E402

from selfexpress.errors import SelfExpressError  # noqa: E402

MOST_GROWTH = 2**30
MOST_SECONDS = 5.0
LONGEST_MESSAGE = 1500
FORBIDDEN = ("pickle.find_class", "subprocess.Popen", "os.system", "socket.connect")
CHANGING = ("os.mkdir", "os.rename", "os.symlink", "os.link", "os.remove", "os.rmdir")


class TooSlow(BaseException):
    """Not an Exception, so that no reader can take it for damage."""


def run(
    n_inputs: int, *, seed: int = 0, first: int = 0, only: str = ""
) -> dict[str, dict[str, Any]]:
    """Return, by reader, how many inputs were read or refused, and the findings."""
    chosen = [target for target in targets() if only in target.name]
    stop = first - (-n_inputs // len(chosen))
    return {target.name: _read_all(target, first, stop, seed) for target in chosen}


def _read_all(target: Target, first: int, stop: int, seed: int) -> dict[str, Any]:
    """Read inputs in a child, and in another from where one was lost."""
    total: dict[str, Any] = {"read": 0, "refused": 0, "findings": []}
    with tempfile.TemporaryDirectory() as folder, mmap.mmap(-1, 8) as at_hand:
        # Here, so that no child begins threads of its own.
        sample = Sample(Path(folder), target)
        while first < stop:
            at_hand[:] = first.to_bytes(8, "little")
            results = Path(folder) / "results.json"
            child = os.fork()
            if child == 0:
                target.read(sample.folder)  # libraries begin their threads
                _limit_growth()
                sys.addaudithook(sample.watch)
                results.write_text(json.dumps(sample.read(first, stop, seed, at_hand)))
                os._exit(0)
            _, status = os.waitpid(child, 0)
            if status == 0:
                found = json.loads(results.read_text())
                first = stop
            else:
                lost = int.from_bytes(at_hand[:], "little")
                what = f"input {lost}: the process ended with {status}"
                # Those before it are read again, and nothing is counted twice.
                found = {"read": 0, "refused": 0, "findings": [what]}
                first = lost + 1
            for key, value in found.items():
                total[key] += value
    return total


class Sample:
    """Valid files of one target, in memory, and the folder its inputs are read in."""

    def __init__(self, root: Path, target: Target) -> None:
        self.target = target
        self.folder = Path(tempfile.mkdtemp(dir=root)) / "inside"
        self.files, self.others = (self._valid(root, seed) for seed in (0, 1))
        self.seen: list[str] = []
        self.is_watched = False
        self._fill(self.files)

    def read(
        self, first: int, stop: int, seed: int, at_hand: mmap.mmap
    ) -> dict[str, Any]:
        """Return counts of outcomes, with findings spelled out."""
        counts: dict[str, Any] = {"read": 0, "refused": 0, "findings": []}
        for number in range(first, stop):
            at_hand[:] = number.to_bytes(8, "little")
            outcome = self._try_input(number, seed)
            if outcome in counts:
                counts[outcome] += 1
            else:
                counts["findings"].append(f"input {number}: {outcome}")
        return counts

    def _valid(self, root: Path, seed: int) -> dict[str, bytes]:
        folder = Path(tempfile.mkdtemp(dir=root))
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

    def _try_input(self, number: int, seed: int) -> str:
        """Return "read", "refused" or what went wrong."""
        key = zlib.crc32(self.target.name.encode())
        rng = np.random.default_rng([seed, key, number])
        name = list(self.files)[int(rng.integers(len(self.files)))]
        content, other = self.files[name], self.others.get(name, b"")
        change = knowing(Path(name)) if rng.integers(3) else mutations.blind
        try:
            damaged = change(content, rng, other)
        except (ValueError, OverflowError, UnicodeError):
            # The packing library refused to write what was asked of it.
            damaged = mutations.blind(content, rng, other)
        (self.folder / name).write_bytes(damaged)
        self.seen.clear()
        self.is_watched = True
        outcome = self._outcome()
        self.is_watched = False
        self._fill({name: content})
        return f"side effect: {self.seen[:3]}" if self.seen else outcome

    def _outcome(self) -> str:
        def stop(*_: object) -> None:
            raise TooSlow

        signal.signal(signal.SIGPROF, stop)
        signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
        try:
            self.target.read(self.folder)
        except SelfExpressError as error:
            return _judged(error)
        except TooSlow:
            return f"slower than {MOST_SECONDS} s"
        except BaseException as error:
            return f"{type(error).__name__}: {str(error)[:200]}"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        return "read"

    def watch(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.is_watched:
            return
        if event in FORBIDDEN:
            self.seen.append(event)
        elif event in CHANGING or (event == "open" and _is_writing(arguments)):
            place = Path.cwd() / os.fsdecode(arguments[0])
            if not place.is_relative_to(self.folder) or ".." in place.parts:
                self.seen.append(f"{event} {place}")


def _is_writing(arguments: tuple[Any, ...]) -> bool:
    path, _, flags = arguments
    wants = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    return isinstance(path, str | bytes) and bool((flags or 0) & wants)


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


def _limit_growth() -> None:
    warnings.simplefilter("ignore")
    text = Path("/proc/self/status").read_text()
    used = 1024 * int(text.split("VmSize:")[1].split()[0])
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_GROWTH, most))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="Number of the first.")
    parser.add_argument("--only", default="", help="Readers with this in their name.")
    parser.add_argument("--record", action="store_true", help="Write a record.")
    options = parser.parse_args()
    start = time.monotonic()
    readers = run(
        options.inputs, seed=options.seed, first=options.first, only=options.only
    )
    for name, counts in readers.items():
        print(f"{name:24} {counts['read']:6} read {counts['refused']:6} refused")  # noqa: T201
        for found in counts["findings"][:10]:
            print(f"    FINDING {found}")  # noqa: T201
    n_findings = sum(len(counts["findings"]) for counts in readers.values())
    if options.record:
        sys.path.insert(0, str(HERE.parents[1]))
        from reproduction.timing import write_record

        summary = {"findings": n_findings, "readers": readers}
        summary["seconds"] = round(time.monotonic() - start, 1)
        config = {"inputs": options.inputs, "most_bytes": MOST_GROWTH}
        config["most_seconds_an_input"] = MOST_SECONDS
        write_record("fuzz", summary, config, seed=options.seed)
    sys.exit(1 if n_findings else 0)


if __name__ == "__main__":
    main()
