"""What a manifest lists, on a real disk: no path leads out of the bundle, no size out of the machine."""

import json
import os
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from drivetrain.digest import digest
from drivetrain.engine import Bundle, BundleError, verify_bundle
from drivetrain.errors import InputError
from drivetrain.tests.fixtures.bundles.make import build

pytestmark = pytest.mark.engine

Entries = list[list[Any]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paths") / "made"
    build(folder)
    return folder / "model"


def listing(made: Path, folder: Path, change: Callable[[Entries], None]) -> Path:
    """A copy whose manifest lists something else, its own digest in order where there is one."""
    shutil.copytree(made, folder)
    body = json.loads((folder / "manifest.json").read_bytes())
    del body["digest"]
    change(body["files"])
    body["digest"] = "none" if any("\0" in name for name, _, _ in body["files"]) else digest("drivetrain-bundle", body)
    (folder / "manifest.json").write_text(json.dumps(body))
    return folder


def entry(path: Path, name: str) -> list[Any]:
    data = path.read_bytes()
    return [name, len(data), sha256(data).hexdigest()]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["../secret", "a/../../secret", "{absolute}", "./graph.json", "graph.json/", "device//x", "", ".", "..", "a\\b",
     "manifest.json", "graph.json"],
)  # fmt: skip
def test_paths_that_lead_elsewhere_are_refused(made: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("secret")
    name = name.format(absolute=tmp_path / "secret")
    folder = listing(made, tmp_path / "copy", lambda files: files.append(entry(tmp_path / "secret", name)))
    with pytest.raises(BundleError, match=r"manifest\.json is not valid \(the path"):
        Bundle.load(folder)
    assert not verify_bundle(folder)[0].ok


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "device", "nothing/here"])
def test_names_that_are_no_files_are_refused(made: Path, tmp_path: Path, name: str) -> None:
    folder = listing(made, tmp_path / "copy", lambda files: files.append([name, 1, "0" * 64]))
    with pytest.raises(BundleError, match=r"is missing|cannot be read|not valid"):
        Bundle.load(folder)


def test_links_out_of_the_folder_are_not_followed(made: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    folder = listing(
        made, tmp_path / "copy", lambda files: files.append(entry(tmp_path / "outside" / "secret", "in/secret"))
    )
    (folder / "in").symlink_to(tmp_path / "outside")
    with pytest.raises(BundleError, match="in/secret is missing"):
        Bundle.load(folder)
    shutil.copytree(made, tmp_path / "linked")
    (tmp_path / "linked" / "graph.json").unlink()
    (tmp_path / "linked" / "graph.json").symlink_to(made / "graph.json")
    with pytest.raises(BundleError, match=r"graph\.json is missing"):
        Bundle.load(tmp_path / "linked")
    (tmp_path / "door").symlink_to(made)  # the folder itself may be named by a link
    assert Bundle.load(tmp_path / "door").signatures


def test_more_than_the_machine_holds_is_not_read(made: Path, tmp_path: Path) -> None:
    huge = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") + 1
    folder = listing(made, tmp_path / "copy", lambda files: files.append(["weights/huge.safetensors", huge, "0" * 64]))
    with (folder / "weights" / "huge.safetensors").open("wb") as file:
        file.truncate(huge)  # sparse: it takes no room on the disk
    with pytest.raises(BundleError, match="more bytes than this machine has memory"):
        Bundle.load(folder)


def test_a_folder_that_is_not_there_is_told_with_the_near_one(tmp_path: Path) -> None:
    (tmp_path / "serving" / "flights").mkdir(parents=True)
    with pytest.raises(InputError, match="there is no folder") as caught:
        Bundle.load(tmp_path / "servng" / "flights")
    assert caught.value.fix == f"did you mean {tmp_path / 'serving' / 'flights'}?"
    with pytest.raises(InputError, match="there is no folder") as caught:
        Bundle.load(tmp_path / "other")
    assert caught.value.fix == f"in {tmp_path} are serving"
