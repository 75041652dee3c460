"""In one process everything is the identity; tests/distributed has the others."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from selfexpress import distributed
from selfexpress.cli.app import app
from selfexpress.errors import ConfigError


def test_alone_every_exchange_is_the_identity():
    rows = torch.arange(6.0).view(3, 2)
    with distributed.process_group():
        assert (distributed.rank(), distributed.n_ranks()) == (0, 1)
        assert distributed.is_main()
        for exchange in (
            distributed.add_up,
            distributed.largest,
            distributed.from_main,
            distributed.gather_rows,
        ):
            assert torch.equal(exchange(rows.clone()), rows)
        ((start, part),) = distributed.around_the_ring(rows, 3)
        assert start == 0
        assert torch.equal(part, rows)


def test_alone_gradients_are_left_as_they_are():
    layer = nn.Linear(2, 1, bias=False)
    layer.weight.grad = torch.ones(1, 2)
    with distributed.summed_gradients(layer.parameters()):
        layer(torch.tensor([[3.0, 4.0]])).sum().backward()
    assert layer.weight.grad.tolist() == [[4.0, 5.0]]


@pytest.mark.parametrize("n_rows", [4, 5, 41, 1000])
@pytest.mark.parametrize("n_ranks", [1, 2, 4])
def test_ranges_follow_each_other_and_differ_by_a_row_at_most(
    n_rows, n_ranks, monkeypatch
):
    monkeypatch.setattr(distributed, "n_ranks", lambda: n_ranks)
    ranges = [distributed.own_range(n_rows, owner) for owner in range(n_ranks)]
    assert [row for start, stop in ranges for row in range(start, stop)] == [
        *range(n_rows)
    ]
    lengths = [stop - start for start, stop in ranges]
    assert max(lengths) - min(lengths) <= 1


def test_many_processes_that_nobody_numbered_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    with (
        pytest.raises(ConfigError, match="WORLD_SIZE=2 is set and RANK is not"),
        distributed.process_group(),
    ):
        pass


def test_only_what_runs_on_many_processes_joins_them(monkeypatch, tmp_path):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    (tmp_path / "labels.csv").write_text("0\n1\n")
    words = ["score", str(tmp_path / "labels.csv"), str(tmp_path / "labels.csv")]
    assert CliRunner().invoke(app, ["--version"]).exit_code == 0
    assert CliRunner().invoke(app, words).exit_code == 0
    refused = CliRunner().invoke(app, ["fit", "rows.npy", "-k", "2", "-o", "m"])
    assert isinstance(refused.exception, ConfigError)
