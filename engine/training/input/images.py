"""Images: JPEG and PNG files in a column decoded, and changed at random while a model is trained on them."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....errors import InputError, missing_extra


@dataclass(frozen=True)
class DecodeImages:
    """For `map(DecodeImages("image", 224, 224), by_row=True)`: bytes of a file → uint8 [height, width, channels].

    With a seed, `map(…, by_row=True, seed=0)`, a random part of each image is taken, of 8 to 100 % of its area and of
    proportions from 3:4 to 4:3 ("Inception crop", Szegedy et al. 2015), and is flipped half of the times. Without, the
    largest part in the middle that has the proportions wanted.

    Attributes:
        column: The name.
        height: Pixels.
        width: Pixels.
        mode: Pillow's: "RGB", or "L" for one channel of grey.
        smallest: Of the area, what a random part has at least.
    """

    column: str
    height: int
    width: int
    mode: str = "RGB"
    smallest: float = 0.08

    def __call__(self, row: Mapping[str, Any], random: np.random.Generator | None = None) -> dict[str, Any]:
        """A row with the image in place of its file.

        Raises:
            InputError: The bytes are no image that Pillow reads.
        """
        try:
            from PIL import Image
        except ImportError as error:
            raise missing_extra("Pillow", "images") from error
        data = row[self.column]
        try:
            with Image.open(io.BytesIO(bytes(data))) as image:
                # JPEG decodes in less time to an eighth, a quarter or half of the size, if that is still enough.
                image.draft(self.mode, (2 * self.width, 2 * self.height))
                box = self._middle(*image.size) if random is None else self._part(random, *image.size)
                resized = image.convert(self.mode).resize((self.width, self.height), Image.Resampling.BILINEAR, box)
        except Exception as error:  # of damaged bytes Pillow's formats raise many kinds
            raise ValueError(f"column {self.column!r} holds no image that can be read: {error}") from error
        array = np.asarray(resized).reshape(self.height, self.width, -1)
        if random is not None and random.random() < 0.5:
            array = array[:, ::-1]
        return {**row, self.column: array}

    def _middle(self, width: int, height: int) -> tuple[float, float, float, float]:
        scale = min(width / self.width, height / self.height)
        left, top = (width - scale * self.width) / 2, (height - scale * self.height) / 2
        return left, top, width - left, height - top

    def _part(self, random: np.random.Generator, width: int, height: int) -> tuple[float, float, float, float]:
        for _ in range(10):
            area = width * height * random.uniform(self.smallest, 1.0)
            proportions = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
            wide, high = math.sqrt(area * proportions), math.sqrt(area / proportions)
            if wide <= width and high <= height:
                left, top = random.uniform(0, width - wide), random.uniform(0, height - high)
                return left, top, left + wide, top + high
        return self._middle(width, height)


@dataclass(frozen=True)
class ShiftAndFlip:
    """For `map(ShiftAndFlip("image", 4), seed=0)`: each image of a batch moved by some pixels, and flipped or not.

    What of small images (He et al. 2016) is called "pad and crop": what comes in at an edge is 0.

    Attributes:
        column: An array [rows, height, width, channels].
        pixels: The furthest move in either direction.
        flip: Whether half of the images are flipped, left and right.
    """

    column: str
    pixels: int
    flip: bool = True

    def __call__(self, columns: Mapping[str, Any], random: np.random.Generator) -> dict[str, Any]:
        """The columns, with other images."""
        images = columns[self.column]
        if images.ndim != 4:
            raise InputError(
                f"column {self.column!r} is {images.dtype}{list(images.shape)}, no batch of images",
                fix="decode it before, to [rows, height, width, channels]",
            )
        rows, height, width, _ = images.shape
        edge = self.pixels
        padded = np.pad(images, ((0, 0), (edge, edge), (edge, edge), (0, 0)))
        top, left = random.integers(0, 2 * edge + 1, (2, rows, 1, 1))
        across = np.arange(width)[None, None, :]
        if self.flip:
            across = np.where(random.random((rows, 1, 1)) < 0.5, across[..., ::-1], across)
        down = np.arange(height)[None, :, None]
        moved = padded[np.arange(rows)[:, None, None], top + down, left + across]
        return {**columns, self.column: moved}
