"""Run cells in processes side by side.

A GPU has room for several small trainings at once, and scoring one on the CPU need not
keep it waiting. Seconds of such cells are shared and say little: cells that are timed
run alone.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection

import torch

from reproduction.cells import Cell, Context, Record, run_cell
from selfexpress.errors import SelfExpressError

# Seconds that a cell has to clean up in, when nobody waits for it any more.
_PATIENCE = 2.0

# Of a worker process; what its cells share stays with it.
_context: Context
_is_busy = threading.Event()


def run_side_by_side(
    cells: Sequence[Cell],
    context: Context,
    n_jobs: int,
    *,
    may_start: Callable[[Cell], bool],
    keep: Callable[[Cell, Record], None],
) -> None:
    """Run cells in ``n_jobs`` processes, each with a context of its own.

    Parameters
    ----------
    cells : sequence of Cell
        Started in this order.
    context : Context
        Device and cache of every process.
    n_jobs : int
    may_start : callable
        Asked before a cell is started; left out if it must not.
    keep : callable
        Given each cell and its record here, in this process, when it ends.

    Raises
    ------
    SelfExpressError
        If one of the processes was ended from outside.
    Exception
        That of the first cell which failed, when those beside it have ended.
    """
    spawning = multiprocessing.get_context("spawn")
    # No process outlives this one's end of the pipe: see ``_end_with``.
    theirs, ours = spawning.Pipe(duplex=False)
    with (
        theirs,
        ours,
        ProcessPoolExecutor(
            n_jobs,
            mp_context=spawning,
            initializer=_start,
            initargs=(Context(context.device, context.cache), n_jobs, theirs),
        ) as pool,
    ):
        try:
            _share_out(cells, pool, n_jobs, may_start=may_start, keep=keep)
        except BrokenProcessPool as error:
            raise SelfExpressError(
                "The processes that run cells should stay until the end, but one was "
                "ended, perhaps for want of memory. Finished cells are kept; go on "
                "with fewer --jobs."
            ) from error
        except BaseException:
            # Leaving the pool would wait for cells whose results nobody takes.
            ours.close()
            raise


def _share_out(
    cells: Sequence[Cell],
    pool: ProcessPoolExecutor,
    n_jobs: int,
    *,
    may_start: Callable[[Cell], bool],
    keep: Callable[[Cell, Record], None],
) -> None:
    waiting = list(reversed(cells))
    running: dict[Future[Record], Cell] = {}
    failure: BaseException | None = None
    while waiting or running:
        while waiting and len(running) < n_jobs:
            cell = waiting.pop()
            if may_start(cell):
                running[pool.submit(_run, cell, n_jobs)] = cell
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            cell, error = running.pop(future), future.exception()
            if error is None:
                keep(cell, future.result())
            else:
                # What runs is kept when it ends; nothing else is started.
                failure = failure or error
                waiting.clear()
    if failure is not None:
        raise failure


def _start(context: Context, n_jobs: int, life: Connection) -> None:
    global _context
    _context = context
    torch.set_num_threads(max(1, torch.get_num_threads() // n_jobs))
    # Not SIGINT, which a shell may have told its background jobs to ignore.
    signal.signal(signal.SIGTERM, _interrupt)
    threading.Thread(target=_end_with, args=(life,), daemon=True).start()


def _end_with(life: Connection) -> None:
    """End this process when the one that started it closes its end, or is gone.

    A cell is interrupted as by Ctrl-C, so that it removes files half written.
    """
    try:
        life.recv_bytes()
    except (EOFError, OSError):
        if hasattr(signal, "pthread_kill"):  # not on Windows
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
            time.sleep(_PATIENCE)
        os._exit(1)


def _interrupt(*_: object) -> None:
    """Interrupt the cell at hand, or end at once if there is none."""
    if _is_busy.is_set():
        raise KeyboardInterrupt
    os._exit(1)


def _run(cell: Cell, n_jobs: int) -> Record:
    _is_busy.set()
    try:
        return run_cell(cell, _context) | {"n_jobs": n_jobs}
    except KeyboardInterrupt:
        os._exit(1)  # nobody waits for it any more
    finally:
        _is_busy.clear()
