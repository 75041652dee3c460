"""Read many damaged files with every reader and report what must not happen.

``make fuzz`` runs 100,000 inputs and writes a record. An input is a function of the
seed, the reader and its number, so that a finding can be made again::

    python tests/fuzz/run.py --only rows-mat --first 4711 --inputs 1
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

BATCH_INPUTS = 250
# An input has 5 seconds in the worker; beyond this even its clock does not answer.
SILENCE_SECONDS = 60.0


def run(
    n_inputs: int, *, seed: int = 0, first: int = 0, only: str = "", n_workers: int = 1
) -> dict[str, Any]:
    """Return counts and findings by reader over ``n_inputs`` in all."""
    from fuzz.targets import targets

    names = [target.name for target in targets()]
    chosen = [place for place, name in enumerate(names) if only in name]
    share = -(-n_inputs // len(chosen))
    batches = [
        {
            "target": place,
            "seed": seed,
            "start": start,
            "stop": min(start + BATCH_INPUTS, first + share),
        }
        for place in chosen
        for start in range(first, first + share, BATCH_INPUTS)
    ]
    results = _all_results(batches, n_workers)
    return _summary(names, chosen, results)


def _all_results(batches: list[dict[str, int]], n_workers: int) -> list[dict[str, Any]]:
    from concurrent.futures import ThreadPoolExecutor

    shares = [batches[place::n_workers] for place in range(n_workers)]
    with ThreadPoolExecutor(n_workers) as pool:
        return [result for part in pool.map(_work, shares) for result in part]


def _work(batches: list[dict[str, int]]) -> list[dict[str, Any]]:
    """Have batches done by a worker; start another where one is lost."""
    results: list[dict[str, Any]] = []
    waiting = list(batches)
    while waiting:
        with tempfile.NamedTemporaryFile() as status:
            status.write(bytes([255] * 16))
            status.flush()
            for result in _lines(waiting, Path(status.name)):
                results.append(result)
                waiting.pop(0)
                if result["findings"]:
                    sys.stderr.write(f"{result}\n"[:2000])
            if waiting:
                place, number = struct.unpack("<QQ", Path(status.name).read_bytes())
                lost = waiting.pop(0)
                if place != lost["target"] or not number < lost["stop"]:
                    raise RuntimeError(f"a worker could not begin with {lost}")
                results.append(_loss(lost, number))
                if number + 1 < lost["stop"]:
                    waiting.insert(0, {**lost, "start": number + 1})
    return results


def _loss(batch: dict[str, int], number: int) -> dict[str, Any]:
    what = "the process was killed or hung"
    return {**batch, "stop": number + 1, "start": number, "read": 0, "refused": 0,
            "findings": [{"input": number, "what": what}]}  # fmt: skip


def _lines(batches: list[dict[str, int]], status: Path) -> Iterator[dict[str, Any]]:
    """Yield a worker's results until it is done, dies or stays silent."""
    worker = subprocess.Popen(
        [sys.executable, str(HERE / "worker.py"), str(status)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "ARROW_NUM_THREADS": "1"},
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    for batch in batches:
        worker.stdin.write(json.dumps(batch) + "\n")
    worker.stdin.close()
    watcher = _kill_when_silent(worker, status)
    try:
        for line in worker.stdout:
            yield json.loads(line)
    finally:
        worker.kill()
        worker.wait()
        worker.stdout.close()
        watcher.join()


def _kill_when_silent(worker: subprocess.Popen[str], status: Path) -> Any:
    """Kill a worker that has stood at one input for too long."""
    from threading import Thread

    def watch() -> None:
        seen, since = b"", time.monotonic()
        while worker.poll() is None:
            time.sleep(0.5)
            now = status.read_bytes() if status.exists() else b""
            if now != seen:
                seen, since = now, time.monotonic()
            elif now[8:] != bytes([255] * 8) and (
                time.monotonic() - since > SILENCE_SECONDS
            ):
                worker.kill()

    thread = Thread(target=watch, daemon=True)
    thread.start()
    return thread


def _summary(
    names: list[str], chosen: list[int], results: list[dict[str, Any]]
) -> dict[str, Any]:
    readers = {}
    for place in chosen:
        own = [result for result in results if result["target"] == place]
        readers[names[place]] = {
            "inputs": sum(result["stop"] - result["start"] for result in own),
            "read": sum(result["read"] for result in own),
            "refused": sum(result["refused"] for result in own),
            "findings": [found for result in own for found in result["findings"]],
        }
    return {
        "inputs": sum(counts["inputs"] for counts in readers.values()),
        "findings": sum(len(counts["findings"]) for counts in readers.values()),
        "readers": readers,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="Number of the first.")
    parser.add_argument("--only", default="", help="Readers with this in their name.")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--record", action="store_true", help="Write a record.")
    options = parser.parse_args()
    start = time.monotonic()
    summary = run(
        options.inputs,
        seed=options.seed,
        first=options.first,
        only=options.only,
        n_workers=options.workers,
    )
    summary["seconds"] = round(time.monotonic() - start, 1)
    for name, counts in summary["readers"].items():
        _say(f"{name:24} {counts['read']:6} read {counts['refused']:6} refused")
        for found in counts["findings"][:10]:
            _say(f"    FINDING input {found['input']}: {found['what']}")
    n_inputs, n_findings = summary["inputs"], summary["findings"]
    _say(f"{n_inputs} inputs, {n_findings} findings, {summary['seconds']} s")
    if options.record:
        _write_record(summary, options)
    sys.exit(1 if summary["findings"] else 0)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def _write_record(summary: dict[str, Any], options: argparse.Namespace) -> None:
    sys.path.insert(0, str(HERE.parents[1]))
    from reproduction.record import write_record

    config = {"inputs": options.inputs, "workers": options.workers}
    config |= {"most_bytes": 2**30, "most_seconds_an_input": 5.0}
    _say(write_record("fuzz", summary, config, seed=options.seed).name)


if __name__ == "__main__":
    main()
