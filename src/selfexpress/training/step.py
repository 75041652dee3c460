"""One training step: batch, gradient, clipping, optimiser, record.

The gradient is that of ``objective.py``, or the same by hand in ``gradients.py``.
:class:`PlainStep` takes it one operation after the other. :class:`GraphedStep` records
it once as a CUDA graph and replays that: a step of the paper's size is some eighty
short kernels, and launching them one by one takes longer than running them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from selfexpress.config import TrainConfig
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.ops.devices import SideStream
from selfexpress.ops.elementwise import clipping_scale
from selfexpress.ops.memory import free_bytes
from selfexpress.ops.precision import float32_products
from selfexpress.rows.sources import RowBlock, RowSource
from selfexpress.training.gradients import FusedGradient
from selfexpress.training.objective import GRADIENT_STEPS, Objective
from selfexpress.training.optimizers import ALIGNMENT, OPTIMIZERS, FlatParameters
from selfexpress.training.schedule import Schedule, plan

RECORDED = ("objective", "reconstruction", "penalty", "learning_rate", "threshold")


class PlainStep:
    """A step, one operation after the other.

    Each writes a row of ``history``, (max_iter, len(RECORDED)), which lies on the
    device of the network. The rates are those of ``schedule``, which may be replaced.
    """

    def __init__(
        self,
        network: SelfExpressiveNetwork,
        source: RowSource,
        config: TrainConfig,
        *,
        seed: int,
        history: Tensor,
    ) -> None:
        self.network = network
        self.config = config
        self.schedule = plan(config)
        self.history = history
        self.device = network.threshold.device
        self.sampler = PermutationSampler(len(source), config.batch_size, seed=seed)
        self.parameters = _flat_parameters(network, config)
        self.optimizer = OPTIMIZERS[config.optimizer](self.parameters)
        self.source = source
        self.is_moving = False  # stays true if the network is left half moved
        self._side = SideStream(self.device)
        self._fused: FusedGradient | None = None
        if config.engine == "fused":
            in_memory = config.algorithm == "naive" or _fits(source, self.device)
            self._fused = FusedGradient(
                network, self.parameters, config, source, in_memory=in_memory
            )
            self.source = self._fused.source

    @property
    def is_replayable(self) -> bool:
        """Whether a step can be recorded as a CUDA graph."""
        return self._fused is not None and self._fused.is_replayable

    def __call__(self, step: int) -> None:
        """Take one step."""
        rate = torch.tensor(self.schedule.rate(step), device=self.device)
        index = self.sampler.batch(step).to(self.device)
        found = self.find_gradient(index)
        self.history[step] = self.record(found, rate)
        self.is_moving = True
        self.move(rate)
        self.is_moving = False

    def find_gradient(self, index: Tensor) -> tuple[Objective, Tensor]:
        """Find the gradient; return the objective and the threshold it is found at."""
        with self._side:
            threshold = self.network.threshold.detach().clone()
        batch = RowBlock(self.source.take(index), index)
        is_tf32 = self.config.precision == "tf32"
        with float32_products("high") if is_tf32 else nullcontext():
            objective = self._gradient(batch)
        self._side.join()
        return objective, threshold

    def record(self, found: tuple[Objective, Tensor], rate: Tensor) -> Tensor:
        """Return one row of the history, in the order of ``RECORDED``."""
        objective, threshold = found
        total = objective.total(self.config.gamma)
        parts = [total, objective.reconstruction, objective.penalty, rate, threshold]
        return torch.stack([part.detach().float() for part in parts])

    def move(self, rate: Tensor) -> None:
        """Change the network against the gradient found."""
        scale = clipping_scale(self.parameters.gradients, self.config.clip_norm)
        self.optimizer.step(rate, scale)

    def state(self) -> dict[str, Tensor]:
        """Return parameters and the optimiser's state, padding included."""
        return {"values": self.parameters.values, **self.optimizer.state()}

    def _gradient(self, batch: RowBlock) -> Objective:
        if self._fused is not None:
            return self._fused.gradient(batch)
        self.parameters.gradients.zero_()
        find = GRADIENT_STEPS[self.config.algorithm]
        with autocast(self.config, self.device):
            return find(self.network, batch, self.source, self.config)


def autocast(
    config: TrainConfig, device: torch.device
) -> AbstractContextManager[object]:
    """Return the context in which torch casts factors to bfloat16, where chosen."""
    if config.precision == "bfloat16":
        # No cache: weights cast without a graph in pass 1 must not serve pass 2.
        return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)
    return nullcontext()


def _fits(source: RowSource, device: torch.device) -> bool:
    """Return whether another copy of all rows takes little of the free memory."""
    return 4 * len(source) * source.n_features < free_bytes(device) / 8


def _flat_parameters(
    network: SelfExpressiveNetwork, config: TrainConfig
) -> FlatParameters:
    own = network.threshold.dtype
    if config.engine != "fused":
        return FlatParameters(network, own)
    working = torch.bfloat16 if config.precision == "bfloat16" else own
    # Gradients that are added up block by block need more digits than they have.
    gradients = own if config.algorithm == "two_pass" else working
    return FlatParameters(
        network, working, gradient_dtype=gradients, alignment=ALIGNMENT
    )


# Steps whose rows and rates are sent to the device at once.
_TABLE_STEPS = 256
_WARMUP_STEPS = 3


class GraphedStep:
    """Replays a :class:`PlainStep` whose rows are all on a CUDA device.

    Which rows, which rate and which line of the history come from small tables on the
    device that a counter walks through: the host says nothing but "again".
    """

    def __init__(self, plain: PlainStep) -> None:
        self._plain = plain
        device, batch_size = plain.device, plain.sampler.batch_size
        self._rows = torch.zeros(
            _TABLE_STEPS, batch_size, dtype=torch.int64, device=device
        )
        self._rates = torch.zeros(_TABLE_STEPS, device=device)
        self._index = torch.zeros(batch_size, dtype=torch.int64, device=device)
        self._place = torch.zeros(1, dtype=torch.int64, device=device)  # in the tables
        self._line = torch.zeros(1, dtype=torch.int64, device=device)  # in the history
        self._schedule: Schedule | None = None  # that the tables follow
        self._table_start = self._next = -1
        self._side = SideStream(device)
        self._graph = self._recorded()

    def __call__(self, step: int) -> None:
        """Replay the graph; send new tables when the old ones are used up."""
        is_inside = 0 <= step - self._table_start < _TABLE_STEPS
        if self._schedule is not self._plain.schedule or not is_inside:
            self._send_tables(step)
        if step != self._next:
            self._place.fill_(step - self._table_start)
            self._line.fill_(step)
            self._choose_rows()
        self._graph.replay()
        self._next = step + 1

    def _send_tables(self, step: int) -> None:
        schedule = self._schedule = self._plain.schedule
        sampler = self._plain.sampler
        steps = range(step, min(step + _TABLE_STEPS, schedule.n_steps))
        rows = torch.stack([sampler.batch(each) for each in steps])
        rates = torch.tensor([schedule.rate(each) for each in steps])
        self._rows[: len(steps)].copy_(rows)
        self._rates[: len(steps)].copy_(rates)
        self._table_start, self._next = step, -1

    def _recorded(self) -> torch.cuda.CUDAGraph:
        """Record a step, after a few real ones whose traces are wiped out again."""
        changed = {**self._plain.state(), "history": self._plain.history[0]}
        before = {name: tensor.clone() for name, tensor in changed.items()}
        try:
            return self._recorded_graph()
        finally:
            # Also where memory does not suffice: training then goes on otherwise.
            torch.cuda.synchronize(self._plain.device)
            for name, tensor in changed.items():
                tensor.copy_(before[name])
            self._plain.parameters.refresh_working()

    def _recorded_graph(self) -> torch.cuda.CUDAGraph:
        # Before what runs beside it: the longest chain sets the time of a step.
        stream = torch.cuda.Stream(priority=-1)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARMUP_STEPS):
                self._place.zero_()
                self._line.zero_()
                self._device_step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            self._device_step()
        return graph

    def _device_step(self) -> None:
        rate = self._rates.index_select(0, self._place).squeeze(0)
        found = self._plain.find_gradient(self._index)
        with self._side:
            record = self._plain.record(found, rate)
            self._plain.history.index_copy_(0, self._line, record[None])
            self._line += 1
            self._place += 1
            self._choose_rows()
        self._plain.move(rate)
        self._side.join()

    def _choose_rows(self) -> None:
        """Get the rows of the step at ``_place``; after the last, any will do."""
        place = self._place.clamp(max=_TABLE_STEPS - 1)
        self._index.copy_(self._rows.index_select(0, place).squeeze(0))


class PermutationSampler:
    """Deal out row positions, every row once before any comes again.

    Permutations follow one another without a gap, so that every batch is full; one
    that spans two of them may hold a row twice. Batch ``step`` depends on nothing but
    ``seed`` and ``step``: training can go on from any step without stored state.
    """

    def __init__(self, n_samples: int, batch_size: int, *, seed: int) -> None:
        self.n_samples = n_samples
        self.batch_size = min(batch_size, n_samples)
        self._seed = seed
        self._epoch = -1
        self._order = torch.empty(0, dtype=torch.int64)

    def batch(self, step: int) -> Tensor:
        """Return the positions of batch ``step``, int64 of shape (batch_size,)."""
        start = step * self.batch_size
        epoch, offset = divmod(start, self.n_samples)
        first = self._permutation(epoch)[offset : offset + self.batch_size]
        n_missing = self.batch_size - len(first)
        if n_missing == 0:
            return first
        return torch.cat([first, self._permutation(epoch + 1)[:n_missing]])

    def _permutation(self, epoch: int) -> Tensor:
        if epoch != self._epoch:
            generator = torch.Generator().manual_seed(self._seed + epoch)
            self._order = torch.randperm(self.n_samples, generator=generator)
            self._epoch = epoch
        return self._order
