"""Names, splits, folders searched, and the descriptions of the data sets."""

from __future__ import annotations

import dataset_files
import pytest

from selfexpress.datasets import registry
from selfexpress.datasets.loading import available, load_dataset, locate, read_dataset
from selfexpress.datasets.locations import find, search_roots, user_cache
from selfexpress.errors import ConfigError, DataError, IgnoredSettingWarning


def test_an_unknown_name_or_split_is_a_setting_error_that_names_the_choices(tmp_path):
    with pytest.raises(ConfigError, match=r"got 'mnits'\. Did you mean mnist\?"):
        load_dataset("mnits", root=tmp_path)
    with pytest.raises(ConfigError, match="one of train, test, full for mnist"):
        load_dataset("mnist", split="validation", root=tmp_path)
    with pytest.raises(ConfigError, match="one of full for coil20, got 'train'"):
        load_dataset("coil20", split="train", root=tmp_path)
    with pytest.raises(ConfigError, match="mnist has no sequences"):
        load_dataset("mnist/1R2RC", root=tmp_path)


@pytest.mark.parametrize("name", ["cifar-10-python.tar.gz", "cifar-10-batches-py"])
def test_the_pickles_of_cifar_are_refused_with_a_pointer_to_the_binary(name, tmp_path):
    folder = tmp_path / "cifar10"
    folder.mkdir()
    if name.endswith("gz"):
        (folder / name).write_bytes(b"never opened")
    else:
        (folder / name).mkdir()

    with pytest.raises(DataError, match=r"pickles.*use cifar-10-binary\.tar\.gz"):
        load_dataset("cifar10", root=tmp_path)


def test_what_is_not_found_says_where_it_was_looked_for_and_how_to_get_it(tmp_path):
    with pytest.raises(
        DataError, match=r"must lie in .*mnist as train-images.*fetch mn"
    ):
        load_dataset("mnist", root=tmp_path, download=False)
    with pytest.raises(DataError, match=r"no address .*/hopkins155/\."):
        load_dataset("hopkins155", root=tmp_path)
    with pytest.raises(DataError, match="must lie in"):
        locate("orl", root=tmp_path)


def test_a_layout_with_a_file_missing_is_not_found(tmp_path, seed):
    written = dataset_files.write_mnist(tmp_path, seed)
    (written.folder / "t10k-labels-idx1-ubyte.gz").unlink()

    assert find(written.spec, [tmp_path]) is None


def test_the_folder_of_the_environment_comes_before_the_cache(
    tmp_path, monkeypatch, seed
):
    named, cache = tmp_path / "named", tmp_path / "cache" / "selfexpress"
    monkeypatch.setenv("SELFEXPRESS_DATA", str(named))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for root in (named, cache):
        dataset_files.write_mat(root, seed)
        dataset_files.write_mnist(root, seed)
    (named / "orl" / "ORL_32x32.mat").unlink()

    assert search_roots() == [named, cache]
    assert locate("mnist").folder == named / "mnist"
    assert locate("orl").folder == cache / "orl"
    assert locate("orl").files == (cache / "orl" / "ORL_32x32.mat",)
    # A folder given is the only one looked at.
    with pytest.raises(DataError, match="must lie in"):
        locate("orl", root=named)


def test_an_environment_variable_that_names_no_folder_is_ignored_with_a_warning(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("SELFEXPRESS_DATA", str(tmp_path / "absent"))

    with pytest.warns(IgnoredSettingWarning, match="must name a folder"):
        roots = search_roots()

    assert roots == [user_cache()]


def test_an_unreadable_or_vanished_file_is_refused(tmp_path, seed):
    written = dataset_files.write_mat(tmp_path, seed)
    location = find(written.spec, [tmp_path])
    (written.folder / "ORL_32x32.mat").unlink()

    with pytest.raises(DataError, match="must be a file, and it is not"):
        read_dataset(written.spec, location, split="full")


def test_the_listing_knows_every_name_once():
    assert [spec.name for spec in available()] == [
        "mnist",
        "fashion-mnist",
        "emnist-lower",
        "cifar10",
        "coil20",
        "orl",
        "hopkins155",
        "ocr-letters",
    ]


@pytest.mark.parametrize("spec", available(), ids=lambda spec: spec.name)
def test_descriptions_are_consistent(spec):
    for layout in spec.layouts:
        parts = {file.part for file in (*layout.files, *layout.members)} - {""}
        assert parts in (set(), set(spec.stored))
    assert {item.path for item in spec.downloads} <= {
        file.path for layout in spec.layouts for file in layout.files
    }
    assert all(item.address.startswith("http") for item in spec.downloads)
    if spec.name not in ("emnist-lower", "hopkins155"):
        assert sum(spec.stored.values()) == spec.n_samples
    assert registry.SPECS[spec.name] is spec
    assert spec.citation.endswith(".")


def test_image_files_have_the_size_that_their_counts_ask_for():
    for name in ("mnist", "fashion-mnist", "emnist-lower"):
        spec = registry.SPECS[name]
        layout = spec.layouts[0]
        for file in layout.members or layout.files:
            n = spec.stored[file.part]
            expected = 16 + n * 28 * 28 if "images" in file.path else 8 + n
            assert file.size == expected
