"""Images as rows, against Pillow and scikit-learn."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drivetrain.data import Source, open_files
from drivetrain.data.reading import images
from drivetrain.errors import DrivetrainError, InputError

Image = pytest.importorskip("PIL.Image")


def picture(width: int, height: int, form: str = "PNG", seed: int = 0) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, form)
    return data.getvalue()


FILES = {
    "cat/1.png": picture(3, 2, seed=1),
    "cat/2.jpg": picture(16, 9, "JPEG", seed=2),
    "dog/1.gif": picture(5, 5, "GIF", seed=3),
}
ROWS = [
    {"path": "cat/1.png", "label": "cat", "image": FILES["cat/1.png"], "width": 3, "height": 2, "format": "PNG"},
    {"path": "cat/2.jpg", "label": "cat", "image": FILES["cat/2.jpg"], "width": 16, "height": 9, "format": "JPEG"},
    {"path": "dog/1.gif", "label": "dog", "image": FILES["dog/1.gif"], "width": 5, "height": 5, "format": "GIF"},
]


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    for name, data in FILES.items():
        path = tmp_path / "pets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "pets"


def paths(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def rows(source: Source) -> list[dict[str, Any]]:
    return [row for shard in source.shards for batch in source.read(shard) for row in batch.to_pylist()]


def archive(folder: Path, name: str) -> Path:
    path = folder.parent / name
    if name.endswith(".zip"):
        with zipfile.ZipFile(path, "w") as file:
            for member in (*FILES, "README.txt"):
                file.writestr(member, FILES.get(member, b"hello"))
    else:
        with tarfile.open(path, "w:gz" if name.endswith("gz") else "w") as tar:
            tar.add(folder, arcname=".", filter=lambda item: item)
    return path


def test_a_folder_per_class(folder: Path) -> None:
    assert rows(open_files(paths(folder))) == ROWS
    assert rows(open_files(paths(folder / "cat"))) == ROWS[:2]


@pytest.mark.parametrize("name", ["pets.zip", "pets.tar", "pets.tar.gz", "pets.tgz"])
def test_an_archive(folder: Path, name: str) -> None:
    found = rows(open_files([archive(folder, name)]))
    key = lambda row: row["path"]  # noqa: E731 - shorter here
    found = [{**row, "path": row["path"].removeprefix("./")} for row in found]
    assert sorted(found, key=key) == ROWS


def test_shards_are_fixed_and_columns_without_bytes_read_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "_SHARD_IMAGES", 2)
    for path in (archive(folder, "pets.zip"), *([archive(folder, "pets.tar")])):
        source = open_files([path])
        assert [shard.rows for shard in source.shards] == [2, 1]
        assert len(rows(source)) == 3
    source = open_files(paths(folder)).select(["label", "width"])
    (folder / "cat/1.png").unlink()
    assert rows(source) == [{"label": row["label"], "width": row["width"]} for row in ROWS]


def test_labels_from_a_csv(folder: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text("path,label\ncat/1.png,007\n2.jpg,b\ndog/1.gif,\n")
    found = rows(open_files(paths(folder), labels=labels))
    assert [row["label"] for row in found] == ["007", "b", None]
    for text, message in [
        ("path,label\ncat/1.png,a\n", "has no label for 'cat/2.jpg'"),
        ("path,label\n" + "cat/1.png,a\n" * 2, "two rows label 'cat/1.png'"),
        ("path,label\ncat/1.png,a\n2.jpg,b\ndog/1.gif,c\nx.png,d\n", "labels 'x.png', which is not among the images"),
        ("path,name\ncat/1.png,a\n", "has no column 'label'"),
    ]:
        labels.write_text(text)
        with pytest.raises(InputError, match=message):
            open_files(paths(folder), labels=labels)


def test_a_file_name_for_two_images_is_no_label(tmp_path: Path) -> None:
    for name in ("a/1.png", "b/1.png"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(FILES["cat/1.png"])
    labels = tmp_path / "labels.csv"
    labels.write_text("path,label\n1.png,x\n")
    with pytest.raises(InputError, match=r"'1\.png' names more than one image"):
        open_files(sorted(tmp_path.rglob("*.png")), labels=labels)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("cat/1.png", b""),
        ("cat/1.png", b"<html>not found</html>"),
        ("cat/1.png", FILES["cat/1.png"][:-20]),
        ("cat/2.jpg", FILES["cat/2.jpg"][: len(FILES["cat/2.jpg"]) // 2]),
        ("dog/1.gif", FILES["dog/1.gif"][:-30]),
    ],
)
def test_a_broken_image_is_named_or_left_out_and_counted(folder: Path, name: str, data: bytes) -> None:
    (folder / name).write_bytes(data)
    with pytest.raises(InputError, match=rf"{name} is not a whole image \("):
        open_files(paths(folder))
    notes: list[str] = []
    found = rows(open_files(paths(folder), on_error="skip", note=notes.append))
    assert found == [row for row in ROWS if row["path"] != name]
    assert len(notes) == 1
    assert notes[0].startswith("1 of 3 images left out; the first: ")
    assert name in notes[0]


def test_nothing_but_broken_images(folder: Path) -> None:
    for path in paths(folder):
        path.write_bytes(b"x")
    with pytest.raises(InputError, match="none of 3 images can be read"):
        open_files(paths(folder), on_error="skip")


def test_a_damaged_archive(folder: Path) -> None:
    path = archive(folder, "pets.tar.gz")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match=r"pets\.tar\.gz is damaged"):
        open_files([path])


def test_an_image_too_large_to_be_one_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(InputError, match=r"cat/2\.jpg is not a whole image .*bomb"):
        open_files(paths(folder))


def test_options_of_images_only(folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "x.csv"
    table.write_text("a\n1\n")
    with pytest.raises(InputError, match=r"on_error: .*x\.csv is CSV, not images"):
        open_files([table], on_error="skip")
    with pytest.raises(InputError, match=r"encoding: .* is images, not CSV"):
        open_files(paths(folder), encoding="latin-1")


def test_pillow_is_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(DrivetrainError, match=r"drivetrain\[images\]"):
        open_files(paths(folder))


def test_the_packaged_digits() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    from drivetrain.pipelines import resolve_files

    expected = datasets.load_digits()
    found = rows(open_files([file.path for file in resolve_files("digits").files]))
    assert len(found) == 1797
    for row in found[::100]:
        number = int(Path(row["path"]).stem)
        assert row["label"] == str(expected.target[number])
        with Image.open(io.BytesIO(row["image"])) as image:
            pixels = np.asarray(image)
        assert (pixels == np.minimum(255, expected.images[number] * 16)).all()
        assert (row["width"], row["height"], row["format"]) == (8, 8, "PNG")
