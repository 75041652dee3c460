"""The rule that ends a training, the rates before and after, and resuming both."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from stopping import FailAt, Spoil, StopError

from selfexpress import make_subspaces
from selfexpress.config import NetworkConfig, TrainConfig
from selfexpress.errors import DegenerateWarning, MemoryWarning
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.rows.sources import ArraySource
from selfexpress.training.callbacks import Callback, ProgressBar
from selfexpress.training.checkpoints import Checkpoints, Progress
from selfexpress.training.loop import train
from selfexpress.training.objective import GRADIENT_STEPS
from selfexpress.training.schedule import has_settled, plan

MOST = 900


def config(**changes):
    settings = {
        "gamma": 50.0,
        "max_iter": MOST,
        "batch_size": 30,
        "learning_rate": 3e-3,
        "schedule": "adaptive",
        "algorithm": "naive",
    }
    return TrainConfig(**(settings | changes))


def problem(seed):
    """Easy rows, expressed well within some hundred steps."""
    data = make_subspaces(
        3, dimension=2, n_features=10, n_samples=20, random_state=seed
    )
    generator = torch.Generator().manual_seed(seed)
    network = SelfExpressiveNetwork(10, NetworkConfig((32,), 32), generator=generator)
    return network, ArraySource(torch.from_numpy(data.X).float())


def noisy(means, seed, noise=0.05):
    """Return an objective with the noise of batches around its means."""
    generator = torch.Generator().manual_seed(seed)
    means = torch.as_tensor(means, dtype=torch.float32)
    return means * (1 + noise * torch.randn(len(means), generator=generator))


def steps_until_settled(objective, zero=1.0):
    """Look every hundred steps, as training does."""
    looks = range(100, len(objective) + 1, 100)
    return next((n for n in looks if has_settled(objective[:n], zero=zero)), None)


# Schedules


def test_cosine_falls_from_the_full_rate_to_nothing():
    schedule = plan(TrainConfig(learning_rate=0.5, max_iter=100))
    assert schedule.rate(0) == 0.5
    assert schedule.rate(50) == pytest.approx(0.25)
    assert schedule.rate(99) == pytest.approx(0, abs=2e-4)
    assert schedule.n_steps == 100


def test_a_constant_rate_stays():
    schedule = plan(TrainConfig(schedule="constant"), rate_factor=0.5)
    assert {schedule.rate(step) for step in range(1000)} == {5e-4}
    assert schedule.n_steps == 1000


@pytest.mark.parametrize(
    ("settled_at", "fall_start", "n_steps"),
    [(None, 675, 900), (300, 300, 400), (400, 400, 534), (600, 600, 800)],
)
def test_an_adaptive_rate_is_full_then_falls_for_a_third_of_the_steps_before(
    settled_at, fall_start, n_steps
):
    schedule = plan(config(), settled_at=settled_at)
    rates = np.array([schedule.rate(step) for step in range(schedule.n_steps)])
    assert len(rates) == n_steps
    assert (rates[: fall_start + 1] == 3e-3).all()
    assert (np.diff(rates[fall_start:]) < 0).all()
    assert rates[(fall_start + n_steps) // 2] == pytest.approx(1.5e-3, rel=0.02)
    assert 0 < rates[-1] < 1e-6


@pytest.mark.parametrize("max_iter", range(1, 14))
def test_no_schedule_goes_past_the_most_steps(max_iter):
    for settled_at in (None, *range(1, max_iter + 1)):
        schedule = plan(config(max_iter=max_iter), settled_at=settled_at)
        assert schedule.n_steps <= max_iter
        assert schedule.fall_start <= schedule.n_steps
        rates = [schedule.rate(step) for step in range(schedule.n_steps)]
        assert min(rates) >= 0
    assert plan(config(max_iter=max_iter)).n_steps == max_iter


# The rule


def test_a_flat_objective_has_settled(seed):
    assert steps_until_settled(noisy(np.full(2000, 0.3), seed)) <= 1000


def test_a_falling_objective_has_not(seed):
    steps = np.arange(1, 5001)
    assert steps_until_settled(noisy(0.9 * steps**-0.3, seed)) is None


def test_an_objective_that_ends_its_fall_has_settled_soon_after(seed):
    means = 0.2 + 0.7 * np.exp(-np.arange(5000) / 400)
    found = steps_until_settled(noisy(means, seed))
    # At 1,600 steps 0.013 of the 0.7 are left, and windows reach back to 0.06.
    assert 1600 <= found <= 3600


def test_the_plateau_at_the_start_is_no_end(seed):
    plateau = np.full(1500, 0.99)
    fall = 0.2 + 0.79 * np.exp(-np.arange(3500) / 200)
    objective = noisy(np.concatenate([plateau, fall]), seed, noise=0.01)
    found = steps_until_settled(objective)
    assert found > 1500
    assert objective[found - 100 : found].mean() < 0.25
    # Where zero coefficients have a larger objective, the same is an end.
    assert steps_until_settled(objective, zero=2.0) < 1500


def test_a_training_that_never_leaves_the_plateau_never_settles(seed):
    assert steps_until_settled(noisy(np.ones(5000), seed, noise=0.01)) is None


def test_too_few_steps_say_nothing():
    assert not has_settled(torch.full((299,), 0.3), zero=1.0)
    assert has_settled(torch.full((300,), 0.3), zero=1.0)


def test_noise_is_averaged_out_before_it_is_believed(seed):
    """Two errors of the difference of two means must be 2 %: n / 5 = 2 (2 / 0.1)^2."""
    objective = noisy(np.full(6000, 0.3), seed, noise=0.2)
    assert 3500 < steps_until_settled(objective) <= 6000


# Training


class Watch(Callback):
    """Notes by step what is known of the end of training."""

    def __init__(self):
        self.ends = {}

    def on_step_end(self, state):
        self.ends[state.step] = (state.fall_start, state.max_iter)


def run(*callbacks, seed=0, checkpoints=None, **changes):
    """Train a fresh network; return it and its history."""
    network, source = problem(seed)
    history = train(
        network,
        source,
        config(**changes),
        seed=seed,
        callbacks=callbacks,
        checkpoints=checkpoints,
    )
    return network, history


def test_training_ends_a_third_after_the_objective_settled(seed):
    watch = Watch()
    _, history = run(watch, seed=seed)
    n_steps = len(history["objective"])
    settled_at, end = watch.ends[n_steps]
    assert 300 <= settled_at < 600
    assert n_steps == end == -(-settled_at * 4 // 3)
    assert watch.ends[settled_at] == (675, MOST)
    assert watch.ends[settled_at + 1] == (settled_at, n_steps)

    schedule = plan(config(), settled_at=settled_at)
    rates = np.float32([schedule.rate(step) for step in range(n_steps)])
    np.testing.assert_array_equal(history["learning_rate"], rates)
    objective = torch.from_numpy(history["objective"])
    assert not has_settled(objective[: settled_at - 100], zero=25.0)
    assert has_settled(objective[:settled_at], zero=25.0)


def test_until_it_settles_training_is_that_of_a_constant_rate(seed):
    constant, adaptive = (
        run(seed=seed, schedule=schedule, max_iter=400)[1]["objective"]
        for schedule in ("constant", "adaptive")
    )
    np.testing.assert_array_equal(constant[:300], adaptive[:300])
    assert constant[-1] != adaptive[-1]


def test_training_that_does_not_settle_ends_with_max_iter():
    # So small a gamma is not worth a coefficient: the plateau is all there is.
    _, history = run(gamma=0.5, max_iter=500)
    assert len(history["objective"]) == 500
    assert history["learning_rate"][375] == pytest.approx(3e-3)
    assert history["learning_rate"][-1] < 1e-6


def test_rows_of_zeros_do_not_end_the_plateau():
    """Their objective is 0 from the start, which looks like a fall below gamma / 2."""
    network, source = problem(0)
    rows = source.take(torch.arange(len(source))).clone()
    rows[::5] = 0
    still = config(learning_rate=1e-9)
    history = train(network, ArraySource(rows), still, seed=0)
    assert len(history["objective"]) == MOST


def test_a_step_of_less_memory_keeps_to_the_schedule(monkeypatch):
    rates = run()[1]["learning_rate"]
    real, calls = GRADIENT_STEPS["naive"], []

    def failing_near_the_end(*arguments):
        calls.append(arguments)
        if len(calls) == len(rates) - 10:
            raise MemoryError
        return real(*arguments)

    monkeypatch.setitem(GRADIENT_STEPS, "naive", failing_near_the_end)
    with pytest.warns(MemoryWarning):
        _, history = run()
    np.testing.assert_array_equal(history["learning_rate"], rates)


def test_the_bar_knows_the_end_once_the_rate_falls(capsys):
    n_steps = len(run(ProgressBar())[1]["objective"])
    assert n_steps < MOST
    assert f"{n_steps}/{n_steps}" in capsys.readouterr().err


# Resuming


class SaveAt(Checkpoints):
    """Checkpoints after the given steps, and at the end."""

    def __init__(self, folder, *steps):
        super().__init__(folder, seconds=1e9)
        self.steps, self.n_asked = steps, 0

    def begin(self, *arguments):
        progress = super().begin(*arguments)
        self.n_asked = progress.step
        return progress

    @property
    def is_due(self):
        self.n_asked += 1
        return self.n_asked in self.steps


def settled_step(history):
    """Return where an undisturbed training settled, from where it ended."""
    n_steps = len(history["objective"])
    return next(n for n in range(100, MOST, 100) if -(-n * 4 // 3) == n_steps)


def test_an_interrupted_training_ends_as_an_undisturbed_one(seed, tmp_path):
    undisturbed, expected = run(seed=seed)
    settled_at = settled_step(expected)
    # Before the rule is asked, right after it was, and while the rate falls.
    saved = (settled_at - 1, settled_at, settled_at + 40)
    for step in saved:
        checkpoints = SaveAt(tmp_path, *saved)
        with pytest.raises(StopError):
            run(FailAt(step + 1), seed=seed, checkpoints=checkpoints)
        known = None if step < settled_at else settled_at
        assert checkpoints.newest().progress == Progress(step, settled_at=known)
    for first in (settled_at + 41, None):
        watch = Watch()
        network, actual = run(watch, seed=seed, checkpoints=SaveAt(tmp_path))
        # The second time it has ended, and is not done again.
        assert min(watch.ends, default=None) == first
        for name, tensor in undisturbed.state_dict().items():
            assert torch.equal(tensor, network.state_dict()[name]), name
        for name, values in expected.items():
            np.testing.assert_array_equal(actual[name], values)


def test_checkpoints_between_two_looks_change_nothing(seed, tmp_path):
    """Small batches: the noise is averaged out some time between two looks."""
    lengths = set()
    for steps in ((), range(301, MOST, 10)):
        checkpoints = SaveAt(tmp_path / str(len(steps)), *steps)
        _, history = run(seed=seed, checkpoints=checkpoints, batch_size=8)
        lengths.add(len(history["objective"]))
    assert len(lengths) == 1


@pytest.mark.parametrize("is_saved", [False, True], ids=["before", "after"])
def test_going_back_returns_to_what_was_known_then(is_saved, tmp_path):
    """From before the rule fired it is asked anew, from after it holds."""
    settled_at = settled_step(run()[1])
    saved = settled_at if is_saved else 50
    watch, spoil = Watch(), Spoil(lambda state: state.fall_start + 20)
    with pytest.warns(DegenerateWarning, match=f"from step {saved} with 0.5 times"):
        _, history = run(spoil, watch, checkpoints=SaveAt(tmp_path, saved))
    n_steps = len(history["objective"])
    expected = (settled_at, n_steps) if is_saved else (675, MOST)
    assert watch.ends[saved + 1] == expected
    assert n_steps == -(-settled_step(history) * 4 // 3)
    assert history["learning_rate"][saved] == pytest.approx(1.5e-3)
    assert history["learning_rate"][-1] < 1e-6
