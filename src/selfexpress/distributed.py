"""Many processes as one: sums, gathers and a ring; the identity in a single process.

The only importer of ``torch.distributed``. Processes are started by ``torchrun``, run
the same code on the same settings, and differ in nothing but the rows that they own.
Rows are owned in contiguous ranges, in the order of the ranks.

What is guaranteed: all ranks get bitwise the same result from every function here, so
that they never part. A sum over ranks adds up in another order than one process does;
in float32 the last digits of a training step depend on the number of ranks, while for
a given number of ranks they are the same every time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import Tensor, nn

from selfexpress.errors import ConfigError


@contextmanager
def process_group() -> Iterator[None]:
    """Join the processes that ``torchrun`` started; alone, do nothing.

    Tensors on the CPU go by gloo, those on GPUs by NCCL; each process takes the GPU of
    its number on the machine.

    Raises
    ------
    ConfigError
        If ``WORLD_SIZE`` is set, but not which process this is.
    """
    n_processes = os.environ.get("WORLD_SIZE", "1")
    if n_processes == "1" or _is_joined():
        yield
        return
    if "RANK" not in os.environ:
        raise ConfigError(
            f"Many processes must be started by torchrun, but WORLD_SIZE={n_processes} "
            "is set and RANK is not. Use torchrun, or unset WORLD_SIZE."
        )
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        _join("cpu:gloo,cuda:nccl")
    else:
        _join("gloo")
    try:
        yield
    except SystemExit as ending:
        # A command that went well ends this way, too.
        if not ending.code:
            dist.destroy_process_group()
        raise
    # Not after an error: the others may be waiting for a message that never comes,
    # and end only when this process does.
    dist.destroy_process_group()


def n_ranks() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if _is_joined() else 1


def rank() -> int:
    """Return the number of this process, from 0."""
    return dist.get_rank() if _is_joined() else 0


def is_main() -> bool:
    """Say whether this is the process that writes and prints."""
    return rank() == 0


def own_range(n_rows: int, owner: int | None = None) -> tuple[int, int]:
    """Return first and last + 1 of the rows that a rank owns, this one's by default."""
    number = rank() if owner is None else owner
    size = n_ranks()
    return number * n_rows // size, (number + 1) * n_rows // size


def add_up(tensor: Tensor) -> Tensor:
    """Return the sum of a tensor over all ranks; may change it in place."""
    if n_ranks() > 1:
        tensor = tensor.contiguous()
        dist.all_reduce(tensor)
    return tensor


def largest(tensor: Tensor) -> Tensor:
    """Return the largest of each entry over all ranks; may change it in place."""
    if n_ranks() > 1:
        tensor = tensor.contiguous()
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return tensor


def from_main(tensor: Tensor) -> Tensor:
    """Return the first rank's tensor; the others give one of the same shape."""
    if n_ranks() > 1:
        tensor = tensor.contiguous()
        dist.broadcast(tensor, src=0)
    return tensor


def gather_rows(own: Tensor) -> Tensor:
    """Return the rows of all ranks in their order; each may have any number of them."""
    if n_ranks() == 1:
        return own
    lengths = torch.zeros(n_ranks(), dtype=torch.int64, device=own.device)
    lengths[rank()] = len(own)
    counts = add_up(lengths).tolist()
    padded = _padded(own, max(counts))
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    return torch.cat([part[:n] for part, n in zip(parts, counts, strict=True)])


def around_the_ring(own: Tensor, n_rows: int) -> Iterator[tuple[int, Tensor]]:
    """Yield every rank's rows with the position of the first, our own first.

    Each rank hands on to the next what it got from the one before, while the rows at
    hand are used: no rank ever holds more than three parts.
    ``own`` are the rows of :func:`own_range`, ``n_rows`` counts those of all ranks.
    """
    size = n_ranks()
    ranges = [own_range(n_rows, owner) for owner in range(size)]
    current = _padded(own, max(stop - start for start, stop in ranges))
    for step in range(size):
        start, stop = ranges[(rank() - step) % size]
        incoming, transfers = current, []
        if step + 1 < size:
            incoming = torch.empty_like(current)
            transfers = _exchange(current, incoming)
        yield start, current[: stop - start]
        for transfer in transfers:
            transfer.wait()
        current = incoming


@contextmanager
def summed_gradients(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """Add up over all ranks what is added to the gradients inside the block."""
    if n_ranks() == 1:
        yield
        return
    kept = list(parameters)
    earlier = [parameter.grad for parameter in kept]
    for parameter in kept:
        parameter.grad = None
    yield
    # One message for all: they are small, and each costs a round trip.
    parts = [
        p.new_zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in kept
    ]
    total = add_up(torch.cat(parts))
    bounds = torch.tensor([0, *(len(part) for part in parts)]).cumsum(0).tolist()
    for parameter, before, (first, last) in zip(
        kept, earlier, pairwise(bounds), strict=True
    ):
        gradient = total[first:last].view_as(parameter)
        # In place: the gradient may be part of a buffer that others hold.
        parameter.grad = gradient if before is None else before.add_(gradient)


def _is_joined() -> bool:
    # Some builds of torch have no distributed package.
    return bool(dist.is_available() and dist.is_initialized())


def _join(backend: str) -> None:
    """Meet the other processes in a place of this attempt's own.

    Where ``torchrun`` starts processes again, those before left their addresses in the
    store, and a process might wait for one that is gone. Launchers of several machines
    count attempts each for itself, so that theirs cannot name the place.
    """
    from torch.distributed.rendezvous import rendezvous

    store, number, size = next(rendezvous("env://"))
    is_one_machine = os.environ.get("GROUP_WORLD_SIZE", "1") == "1"
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    place = f"attempt {attempt if is_one_machine else 'any'}"
    dist.init_process_group(
        backend,
        store=dist.PrefixStore(place, store),  # type: ignore[attr-defined]
        rank=number,
        world_size=size,
    )


def _exchange(outgoing: Tensor, incoming: Tensor) -> list[dist.Work]:
    """Start to send to the next rank and to receive from the one before."""
    following = (rank() + 1) % n_ranks()
    preceding = (rank() - 1) % n_ranks()
    works: list[dist.Work] = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, outgoing, following),
            dist.P2POp(dist.irecv, incoming, preceding),
        ]
    )
    return works


def _padded(rows: Tensor, length: int) -> Tensor:
    """Return rows followed by zeros: messages between ranks have one size."""
    padded = rows.new_zeros((length, *rows.shape[1:]))
    padded[: len(rows)] = rows
    return padded
