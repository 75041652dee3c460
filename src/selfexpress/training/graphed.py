"""A whole training step as one CUDA graph.

A step of the paper's size is some eighty short kernels; launching them one by one
takes longer than running them. The graph is recorded once and replayed for every
step without a word from the host: which rows, which rate and which line of the
history come from small tables on the device that a counter walks through.
"""

from __future__ import annotations

import torch
from torch import Tensor

from selfexpress.training.schedule import Schedule
from selfexpress.training.steps import PlainStep
from selfexpress.training.streams import SideStream

# Steps whose rows and rates are sent to the device at once.
_TABLE_STEPS = 256
_WARMUP_STEPS = 3


class GraphedStep:
    """Replays a :class:`~selfexpress.training.steps.PlainStep`.

    Parameters
    ----------
    plain : PlainStep
        On a CUDA device, with all its rows there.
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
        self._table_start = -_TABLE_STEPS
        self._next = -1
        self._side = SideStream(device)
        self._graph = self._recorded()

    def __call__(self, step: int) -> None:
        """Replay the graph; send new tables when the old ones are used up."""
        if not self._table_start <= step < self._table_start + _TABLE_STEPS:
            self._send_tables(step)
        if step != self._next:
            self._place.fill_(step - self._table_start)
            self._line.fill_(step)
            self._choose_rows()
        self._graph.replay()
        self._next = step + 1

    def follow(self, schedule: Schedule) -> None:
        """Have the tables sent again before the next step, with other rates."""
        self._plain.follow(schedule)
        self._table_start = -_TABLE_STEPS

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that steps change."""
        return self._plain.state()

    def finish(self) -> None:
        """Leave the network with parameters of its own."""
        self._plain.finish()

    def _send_tables(self, step: int) -> None:
        schedule, sampler = self._plain.schedule, self._plain.sampler
        steps = range(step, min(step + _TABLE_STEPS, schedule.n_steps))
        rows = torch.stack([sampler.batch(each) for each in steps])
        rates = torch.tensor([schedule.rate(each) for each in steps])
        self._rows[: len(steps)].copy_(rows)
        self._rates[: len(steps)].copy_(rates)
        self._table_start, self._next = step, -1

    def _recorded(self) -> torch.cuda.CUDAGraph:
        """Record a step, after a few real ones whose traces are wiped out again."""
        changed = {**self.state(), "history": self._plain.history[0]}
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
