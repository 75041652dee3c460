"""Downloads from a server in this process, and the command line around them."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import dataset_files
import numpy as np
import pytest
from typer.testing import CliRunner

from selfexpress.cli.data import app
from selfexpress.datasets.loading import read_dataset
from selfexpress.datasets.locations import TransferBar, download_files, find
from selfexpress.datasets.registry import DatasetSpec
from selfexpress.errors import ConfigError, DataError


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(tmp_path) -> Iterator[tuple[str, Path]]:
    """Serve a folder on a free port of this machine."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}/", folder
        httpd.shutdown()
        thread.join()


def served(spec: DatasetSpec, address: str, folder: Path) -> DatasetSpec:
    """Point the downloads of ``spec`` at the server, with the served files' sums."""
    downloads = tuple(
        replace(
            item,
            address=f"{address}{item.path}",
            checksum=dataset_files.md5((folder / item.path).read_bytes())
            if item.checksum
            else "",
        )
        for item in spec.downloads
    )
    return replace(spec, downloads=downloads)


def test_files_are_downloaded_verified_and_then_found(server, tmp_path, seed, capfd):
    address, folder = server
    written = dataset_files.write_mnist(folder.parent / "served-root", seed)
    for path in written.folder.iterdir():
        path.rename(folder / path.name)
    spec = served(written.spec, address, folder)

    location = download_files(spec, tmp_path / "cache")

    assert location == find(spec, [tmp_path / "cache"])
    dataset = read_dataset(spec, location, split="test")
    np.testing.assert_array_equal(dataset.samples, written.samples["test"])
    output, progress = capfd.readouterr()
    assert output == ""
    assert "t10k-labels-idx1-ubyte.gz" in progress


def test_a_download_with_another_checksum_is_refused_and_not_kept(
    server, tmp_path, seed
):
    address, folder = server
    written = dataset_files.write_cifar(folder / "x", seed, layout="cifar-archive")
    archive = written.folder / "cifar-10-binary.tar.gz"
    archive.rename(folder / archive.name)
    spec = served(written.spec, address, folder)
    (folder / archive.name).write_bytes(b"altered on the way")

    with pytest.raises(
        DataError, match=r"could not be downloaded.*expected .* but got"
    ):
        download_files(spec, tmp_path / "cache")

    assert [p for p in (tmp_path / "cache").rglob("*") if p.is_file()] == []


def test_a_download_without_a_published_sum_is_verified_by_its_content(
    server, tmp_path, seed
):
    address, folder = server
    written = dataset_files.write_letters_text(folder / "x", seed)
    text = written.folder / "letter.data.gz"
    text.rename(folder / text.name)
    spec = served(written.spec, address, folder)

    location = download_files(spec, tmp_path / "good")
    assert location.layout.reader == "letters-text"

    images, labels = written.samples["full"], written.labels["full"]
    altered = dataset_files.letters_text(1 - images, labels)
    (folder / text.name).write_bytes(gzip.compress(altered))
    with pytest.raises(DataError, match=r"must have the checksum sha256:\w+, found"):
        download_files(spec, tmp_path / "bad")
    assert [p for p in (tmp_path / "bad").rglob("*") if p.is_file()] == []


def test_a_missing_file_on_the_server_is_one_clear_error(server, tmp_path, seed):
    address, folder = server
    written = dataset_files.write_mnist(folder / "x", seed)
    downloads = tuple(
        replace(item, address=f"{address}{item.path}")
        for item in written.spec.downloads
    )

    with pytest.raises(DataError, match=r"could not be downloaded.*404.*Try again"):
        download_files(replace(written.spec, downloads=downloads), tmp_path / "cache")


def test_the_progress_bar_survives_an_unknown_length(capfd):
    bar = TransferBar("file.gz")
    with bar.progress:
        bar.update(10)
        bar.total = 20
        bar.reset()
        bar.update(20)
        bar.close()

    assert "file.gz" in capfd.readouterr().err


def run(*arguments: str | Path) -> str:
    result = CliRunner().invoke(
        app, [str(argument) for argument in arguments], catch_exceptions=False
    )
    assert result.exit_code == 0
    return result.stdout


def test_the_listing_shows_sizes_and_where_each_set_is(tmp_path, seed):
    written = dataset_files.write_mat(tmp_path, seed)

    entries = {
        e["name"]: e for e in json.loads(run("list", "--root", tmp_path, "--json"))
    }
    lines = run("list", "--root", tmp_path).splitlines()

    assert entries["orl"]["folder"] == str(written.folder)
    assert entries["mnist"]["folder"] is None
    assert entries["emnist-lower"]["n_samples"] == 190_998
    assert entries["cifar10"]["shape"] == [3, 32, 32]
    assert len(lines) == 9
    assert lines[1].split() == [
        *("mnist", "70000", "10", "28x28", "train/test/full", "not", "found")
    ]


def test_where_prints_the_folder_and_with_json_the_files(tmp_path, seed):
    written = dataset_files.write_mat(tmp_path, seed)

    assert run("where", "orl", "--root", tmp_path) == f"{written.folder}\n"
    assert json.loads(run("where", "orl", "--root", tmp_path, "--json")) == {
        "name": "orl",
        "folder": str(written.folder),
        "layout": "mat",
        "files": [str(written.folder / "ORL_32x32.mat")],
    }


def test_the_command_line_raises_our_errors_for_its_caller_to_print(tmp_path, seed):
    dataset_files.write_mat(tmp_path, seed)

    with pytest.raises(DataError, match="must lie in"):
        run("where", "mnist", "--root", tmp_path)
    with pytest.raises(ConfigError, match="must be one of"):
        run("where", "imagenet", "--root", tmp_path)
    # The small file is not the published one, which fetching must notice.
    with pytest.raises(DataError, match="must have the checksum sha256:"):
        run("fetch", "orl", "--root", tmp_path)


def test_fetching_what_is_there_verifies_it_and_prints_its_folder(data_folder):
    assert run("fetch", "orl", "--root", data_folder) == f"{data_folder / 'orl'}\n"
