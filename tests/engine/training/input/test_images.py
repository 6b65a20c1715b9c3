"""Images decoded and changed: against Pillow and NumPy, and by what a random change must leave as it is."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from drivetrain.engine.training.input import Dataset, DecodeImages, ShiftAndFlip, from_arrays
from drivetrain.errors import InputError
from PIL import Image


def picture(width: int, height: int) -> np.ndarray:
    """Red rises to the right, green downwards."""
    across, down = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return np.stack([across, down, np.full_like(across, 80)], -1).astype(np.uint8)


def encoded(array: np.ndarray, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(array).save(file, kind, **options)
    return file.getvalue()


def rows(count: int = 12) -> Dataset:
    """JPEG files of 160 x 80 and PNG files of 60 x 90 pixels."""
    files = [
        encoded(picture(160, 80), "JPEG", quality=95) if row % 2 else encoded(picture(60, 90), "PNG")
        for row in range(count)
    ]
    return from_arrays({"image": files, "row": np.arange(count)})


def test_the_middle_is_what_pillow_makes_of_it() -> None:
    images = next(iter(rows(2).map(DecodeImages("image", 40, 40), by_row=True)))["image"]
    assert (images.shape, images.dtype) == ((2, 40, 40, 3), np.uint8)
    png = Image.fromarray(picture(60, 90)).crop((0, 15, 60, 75)).resize((40, 40), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(images[0], np.asarray(png))
    jpeg = Image.fromarray(picture(160, 80)).crop((40, 0, 120, 80)).resize((40, 40), Image.Resampling.BILINEAR)
    assert np.abs(images[1].astype(int) - np.asarray(jpeg)).max() <= 6  # JPEG loses a little


def test_grey_has_one_channel_and_sizes_need_not_be_square() -> None:
    images = next(iter(rows(3).map(DecodeImages("image", 20, 30, mode="L"), by_row=True)))["image"]
    assert images.shape == (3, 20, 30, 1)


def test_a_random_part_is_a_part() -> None:
    dataset = rows(40).map(DecodeImages("image", 32, 32), by_row=True, seed=4)
    images = next(iter(dataset))["image"].astype(float)
    slopes = np.sign(np.diff(images[..., 0].mean(axis=1), axis=1).mean(axis=1))
    assert {-1.0, 1.0} == set(slopes)  # some are flipped
    assert (np.diff(images[..., 1].mean(axis=2), axis=1).mean(axis=1) > 0).all()  # none stands on its head
    widths = images[..., 0].max(axis=(1, 2)) - images[..., 0].min(axis=(1, 2))
    assert widths.min() < 130 < widths.max()
    np.testing.assert_array_equal(next(iter(dataset))["image"], images)
    assert not np.array_equal(next(iter(dataset.repeat(2).batch(80)))["image"][40:], images)


def test_in_workers_the_bits_are_the_same() -> None:
    def build(workers: int) -> Dataset:
        return rows().batch(4).map(DecodeImages("image", 24, 24), by_row=True, seed=1, workers=workers)

    for alone, shared in zip(build(0), build(2), strict=True):
        np.testing.assert_array_equal(alone["image"], shared["image"])


@pytest.mark.parametrize("flip", [False, True])
def test_moved_images_are_windows_of_the_padded_ones(flip: bool) -> None:
    images = np.random.default_rng(0).integers(1, 255, (60, 9, 7, 2)).astype(np.uint8)
    dataset = from_arrays({"image": images}).map(ShiftAndFlip("image", 2, flip=flip), seed=3)
    moved = next(iter(dataset))["image"]
    kinds = set()
    for before, after in zip(images, moved, strict=True):
        padded = np.pad(before, ((2, 2), (2, 2), (0, 0)))
        candidates = {
            (top, left, flipped): padded[top : top + 9, left : left + 7][:, :: -1 if flipped else 1]
            for top in range(5) for left in range(5) for flipped in (False, True)[: 1 + flip]
        }  # fmt: skip
        kinds |= {kind for kind, window in candidates.items() if np.array_equal(window, after)}
    assert len(kinds) > 20


@pytest.mark.parametrize(
    "raw",
    [b"no image", encoded(picture(60, 60), "JPEG")[:300], encoded(picture(60, 60), "BMP")[:300], b"P6 \xf60 60 255\n"],
)
def test_what_is_no_image_is_named_with_its_row(raw: bytes) -> None:
    files = [encoded(picture(20, 20), "PNG")] * 3 + [raw]
    dataset = from_arrays({"image": files}).batch(2).map(DecodeImages("image", 8, 8), by_row=True)
    with pytest.raises(InputError, match=r"at rows 2 to 3 of epoch 1: .*'image' holds no image that can be read"):
        list(dataset)
    with pytest.raises(InputError, match="no batch of images"):
        list(from_arrays({"image": np.zeros((3, 4))}).map(ShiftAndFlip("image", 1), seed=0))
