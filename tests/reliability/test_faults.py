"""What goes wrong around a training: each fault costs as little as it can.

Every test here is a row of the table in ``docs/reliability.md``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest
import torch
from stopping import Spoil

from selfexpress import SENet, make_subspaces
from selfexpress.errors import (
    CheckpointError,
    ConfigError,
    DamagedFileWarning,
    DataError,
    DegenerateError,
    DegenerateWarning,
)
from selfexpress.files.arrays import write_array
from selfexpress.files.atomic import replacing
from selfexpress.training.callbacks import Callback
from selfexpress.training.checkpoints import Checkpoints

SETTINGS = {
    "hidden_sizes": (16,),
    "n_embedding": 16,
    "max_iter": 40,
    "start": "random",
    "n_init": 3,
    "affinity": "symmetric",
    "device": "cpu",
    "random_state": 0,
}


@pytest.fixture(autouse=True)
def _heed_ctrl_c():
    """Ctrl-C as in a terminal: processes in the background are born to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def senet(**changes):
    return SENet(3, **{**SETTINGS, **changes})


@pytest.fixture(scope="module")
def rows():
    return make_subspaces(3, dimension=2, n_features=10, n_samples=15, random_state=0).X


@pytest.fixture(scope="module")
def undisturbed(rows):
    return senet().fit(rows)


def assert_same_model(model, other):
    np.testing.assert_array_equal(model.labels_, other.labels_)
    for name, weight in other.network_.state_dict().items():
        assert torch.equal(model.network_.state_dict()[name], weight), name
    np.testing.assert_array_equal(
        model.history_["objective"], other.history_["objective"]
    )


class Interrupt(Callback):
    """Send this process a signal after some step."""

    def __init__(self, step, number=signal.SIGINT):
        self.step, self.number = step, number

    def on_step_end(self, state):
        if state.step == self.step:
            os.kill(os.getpid(), self.number)


def interrupted(rows, folder, *, step=15):
    with pytest.raises(KeyboardInterrupt):
        senet(checkpoint=folder, callbacks=[Interrupt(step)]).fit(rows)
    return folder


def test_ctrl_c(rows, undisturbed, tmp_path):
    interrupted(rows, tmp_path)
    assert Checkpoints(tmp_path).newest().progress.step == 15
    assert_same_model(senet(checkpoint=tmp_path).fit(rows), undisturbed)


def in_a_new_process(script: str, *arguments: Path) -> subprocess.CompletedProcess:
    """Run Python beside this one: a fork of it would inherit its stopped threads."""
    tests = Path(__file__).parents[1]
    paths = os.pathsep.join(map(str, (tests, tests.parent / "src")))
    words = [sys.executable, "-W", "ignore", "-c", script, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        words, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def rows_file(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.npy"
    np.save(path, rows)
    return path


def test_sigterm(rows, rows_file, undisturbed, tmp_path):
    done = in_a_new_process(
        "import signal, sys; import numpy as np;"
        "from reliability.test_faults import Interrupt, senet;"
        "stop = Interrupt(15, signal.SIGTERM);"
        "senet(checkpoint=sys.argv[1], callbacks=[stop]).fit(np.load(sys.argv[2]))",
        tmp_path,
        rows_file,
    )
    assert done.returncode == -signal.SIGTERM, done.stderr
    assert Checkpoints(tmp_path).newest().progress.step == 15
    assert_same_model(senet(checkpoint=tmp_path).fit(rows), undisturbed)


def test_sigkill(tmp_path):
    done = in_a_new_process(
        "import sys; from pathlib import Path;"
        "from reliability.crash import crash_test;"
        "tally = crash_test(6, seed=0, folder=Path(sys.argv[1]));"
        "print(tally.kills, tally.lost, tally.different)",
        tmp_path,
    )
    assert done.stdout.split() == ["6", "0", "0"], done.stderr


def test_a_fit_that_was_finished(rows, undisturbed, tmp_path):
    senet(checkpoint=tmp_path).fit(rows)
    heard = Interrupt(step=-1)
    again = senet(checkpoint=tmp_path, callbacks=[heard]).fit(rows)
    assert_same_model(again, undisturbed)


def test_a_damaged_checkpoint(rows, undisturbed, tmp_path):
    interrupted(rows, tmp_path)
    newest = max(tmp_path.iterdir())
    content = bytearray(newest.read_bytes())
    content[-1] ^= 1
    newest.write_bytes(content)
    with pytest.warns(DamagedFileWarning, match=newest.name):
        model = senet(checkpoint=tmp_path).fit(rows)
    assert_same_model(model, undisturbed)


def test_a_checkpoint_of_other_data_or_settings(rows, tmp_path):
    interrupted(rows, tmp_path)
    with pytest.raises(CheckpointError, match=r"gamma \(30\.\d+ there, 100.0 here\)"):
        senet(checkpoint=tmp_path, gamma=100.0).fit(rows)
    with pytest.raises(CheckpointError, match="differ in rows"):
        senet(checkpoint=tmp_path).fit(rows[::-1])
    with pytest.raises(CheckpointError, match="random_state"):
        senet(checkpoint=tmp_path, random_state=1).fit(rows)
    assert Checkpoints(tmp_path).newest().progress.step == 15


def test_checkpoints_without_a_random_state(rows, tmp_path):
    with pytest.raises(ConfigError, match="random_state must be fixed"):
        senet(checkpoint=tmp_path, random_state=None).fit(rows)


def test_a_full_disk(rows, tmp_path):
    """A limit on file size fails a write as a full disk does."""
    import resource

    interrupted(rows, tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(CheckpointError, match="must be written") as caught:
            senet(checkpoint=tmp_path).fit(rows)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "\n" not in str(caught.value)
    assert Checkpoints(tmp_path).newest().progress.step == 15


def test_a_folder_that_cannot_be_written_to(rows, rows_file, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="must name a folder"):
        senet(checkpoint=tmp_path / "file").fit(rows)
    interrupted(rows, tmp_path / "kept")
    done = in_a_new_process(
        "import sys; import numpy as np; from pathlib import Path;"
        "from reliability.test_faults import refusal_without_rights;"
        "rows = np.load(sys.argv[2]);"
        "print(refusal_without_rights(Path(sys.argv[1]), rows))",
        tmp_path / "kept",
        rows_file,
    )
    (tmp_path / "kept").chmod(0o755)
    assert "must be writable" in done.stdout, done.stderr
    assert Checkpoints(tmp_path / "kept").newest().progress.step == 15


def refusal_without_rights(folder: Path, rows: np.ndarray) -> str:
    """Give up all privileges, so that permissions apply, and fit."""
    senet().fit(rows)  # loads what cannot be read afterwards
    folder.chmod(0o555)
    for parent in takewhile(lambda p: "pytest" in str(p), folder.parents):
        parent.chmod(0o755)
    if os.geteuid() == 0:
        os.setuid(65534)
    try:
        senet(checkpoint=folder).fit(rows)
    except CheckpointError as error:
        return str(error)
    return "nothing was refused"


class Vanish(Callback):
    """Remove the folder of checkpoints while training runs."""

    def __init__(self, folder):
        self.folder = folder

    def on_step_end(self, state):
        if state.step == 3:
            for path in self.folder.iterdir():
                path.unlink()
            self.folder.rmdir()


def test_a_folder_that_vanishes(rows, tmp_path):
    folder = tmp_path / "gone"
    with pytest.raises(CheckpointError, match="gone must exist"):
        senet(checkpoint=folder, callbacks=[Vanish(folder)]).fit(rows)


def test_an_input_file_that_vanishes(rows, tmp_path):
    from selfexpress.rows.opening import open_rows

    path = tmp_path / "rows.parquet"
    write_array(path, rows)
    source = open_rows(path)
    path.unlink()
    with pytest.raises(DataError, match=r"rows\.parquet must") as caught:
        senet().fit(source)
    assert "\n" not in str(caught.value)


def test_a_write_that_is_interrupted(tmp_path):
    path = tmp_path / "labels.npy"
    path.write_text("old")

    def write():
        with replacing(path) as target:
            target.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("value", [float("nan"), -1e9])
def test_an_objective_that_is_nan_or_explodes(value, rows, tmp_path):
    with pytest.raises(DegenerateError, match=r"objective must .*Lower learning_rate"):
        senet(callbacks=[Spoil(20, value, 9)]).fit(rows)
    with pytest.warns(DegenerateWarning, match=r"from step 0 with 0\.5 times"):
        model = senet(checkpoint=tmp_path, callbacks=[Spoil(20, value)]).fit(rows)
    assert np.isfinite(model.history_["objective"]).all()
    assert model.history_["learning_rate"][0] == pytest.approx(5e-4)


LIMITED = """
import resource, sys, warnings
import numpy as np, torch
from selfexpress import SENet
from selfexpress.config import NetworkConfig, TrainConfig
from selfexpress.errors import MemoryWarning
from selfexpress.training.objective import naive_step_bytes

torch.set_num_threads(1)
rng = np.random.default_rng(0)
basis = rng.normal(size=(2, 3, 10))
rows = np.concatenate([rng.normal(size=(4096, 3)) @ part for part in basis])
settings = dict(hidden_sizes=(2048,), n_embedding=32, n_init=1, max_iter=2)
settings |= dict(
    algorithm=sys.argv[1], n_train_samples=None, n_nonzero=20, refine=None
)
model = SENet(2, **settings, gamma=2000.0, device="cpu", random_state=0)
SENet(2, **{**settings, "hidden_sizes": (4,)}, gamma=2000.0, device="cpu",
      random_state=0).fit(rows[::40])  # load all that is loaded late

# What a block of the default size needs, for all 8192 rows.
needed = naive_step_bytes(
    8192, 10, network=NetworkConfig((2048,), 32), train=TrainConfig(batch_size=200)
)
status = open("/proc/self/status").read()
used = 1024 * int(status.split("VmSize:")[1].split()[0])
resource.setrlimit(resource.RLIMIT_AS, (used + needed // 2, resource.RLIM_INFINITY))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model.fit(rows)
n_halved = sum(issubclass(each.category, MemoryWarning) for each in caught)
print(model.block_size, n_halved, len(model.labels_))
"""


@pytest.mark.parametrize(
    "algorithm", [pytest.param("naive", marks=pytest.mark.slow), "two_pass"]
)
def test_a_limit_on_memory(algorithm):
    """Half of what the default block would need: smaller blocks, and a fit."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, algorithm],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    block_size, n_halved, n_labels = map(int, done.stdout.split())
    assert (block_size, n_labels) == (16_384, 8192)
    assert n_halved >= 1


@pytest.mark.slow
def test_the_command_line_goes_on_after_sigterm(rows, tmp_path):
    write_array(tmp_path / "rows.npy", rows)
    command = [
        sys.executable, "-m", "selfexpress", "fit", str(tmp_path / "rows.npy"),
        "-k", "3", "--max-iter", "3000", "--quiet", "--json", "--device", "cpu",
    ]  # fmt: skip
    plain = [*command, "-o", str(tmp_path / "plain.selfexpress")]
    subprocess.run(plain, check=True, capture_output=True, timeout=300)
    saved = [*command, "-o", str(tmp_path / "saved.selfexpress")]
    saved += ["--checkpoint", str(tmp_path / "checkpoints")]
    process = subprocess.Popen(saved, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    # The first checkpoint is written when training starts.
    while not list((tmp_path / "checkpoints").glob("step-*")):
        time.sleep(0.01)
    process.terminate()
    process.communicate(timeout=300)
    assert process.returncode == -signal.SIGTERM
    assert not (tmp_path / "saved.selfexpress").exists()
    subprocess.run(saved, check=True, capture_output=True, timeout=300)
    first = (tmp_path / "plain.selfexpress").read_bytes()
    assert (tmp_path / "saved.selfexpress").read_bytes() == first
