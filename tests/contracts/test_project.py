"""Promises about the project as a whole."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import selfexpress
from selfexpress import features

SOURCE = Path(selfexpress.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))


def test_public_names_are_these():
    assert set(selfexpress.__all__) == {
        "ESC",
        "EnSC",
        "SENet",
        "SSCOMP",
        "__version__",
        "load_dataset",
        "make_subspaces",
        "objective_gap",
        "open_rows",
    }
    assert all(hasattr(selfexpress, name) for name in selfexpress.__all__)


def test_every_module_can_be_imported():
    for module in pkgutil.walk_packages([str(SOURCE)], "selfexpress."):
        needs_gpu = module.name.endswith("triton_kernels")
        if needs_gpu and importlib.util.find_spec("triton") is None:
            continue
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


@pytest.mark.parametrize(
    "estimator",
    [
        selfexpress.SENet,
        selfexpress.EnSC,
        selfexpress.SSCOMP,
        selfexpress.ESC,
        features.Scattering2D,
        features.Whitening,
    ],
    ids=lambda estimator: estimator.__name__,
)
def test_every_setting_is_documented(estimator):
    text = inspect.getdoc(estimator)
    parameters = text.split("Parameters\n")[1].split("Attributes\n")[0]
    documented = {
        name
        for line in parameters.splitlines()
        if line and not line.startswith(" ")
        for name in re.findall(r"\w+", line.split(" : ")[0])
    }
    settings = set(inspect.signature(estimator).parameters)
    assert settings <= documented, settings - documented


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_no_code_loads_a_pickle(module):
    text = module.read_text()
    assert not re.search(r"\bimport pickle|torch\.load\(|allow_pickle=True", text)
