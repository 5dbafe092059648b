"""Laws of image files, most of them hostile."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from builders.pictures import encode_picture, random_pixels
from ninfer_runtime.errors import RequestError
from ninfer_runtime.frontend.images import MediaLimits, decode_image

LIMITS = MediaLimits(file_bytes=1 << 20, pixels=100_000)


def decode(data: bytes) -> np.ndarray:
    return decode_image(data, "picture", LIMITS).permute(1, 2, 0).numpy()


def png_of(width: int, height: int) -> bytes:
    """A PNG header that promises a size and holds no pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0" * 100)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels)


@pytest.mark.parametrize("format", ["PNG", "BMP", "TIFF", "PPM"])
def test_lossless_files_give_their_pixels(format):
    """FE-14"""
    pixels = random_pixels(7, 9)
    assert np.array_equal(decode(encode_picture(pixels, format)), pixels)


@pytest.mark.parametrize("format", ["JPEG", "WEBP", "GIF"])
def test_case_73_other_files_give_their_size(format):
    assert decode(encode_picture(random_pixels(7, 9), format)).shape == (7, 9, 3)


def test_case_73_photographs_are_turned_upright():
    """FE-14"""
    pixels = random_pixels(4, 6)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned right by a quarter
    assert np.array_equal(decode(encode_picture(pixels, exif=exif)), np.rot90(pixels, -1))


def test_case_73_transparency_and_grey_become_colours():
    pixels = np.dstack([random_pixels(3, 3), np.zeros((3, 3), np.uint8)])
    assert np.array_equal(decode(encode_picture(pixels)), pixels[:, :, :3])
    grey = np.arange(9, dtype=np.uint8).reshape(3, 3)
    assert np.array_equal(decode(encode_picture(grey)), np.repeat(grey[:, :, None], 3, 2))


def test_sixteen_bit_grey_keeps_its_upper_byte():
    grey = (np.arange(9, dtype=np.uint16) * 5000).reshape(3, 3)
    assert np.array_equal(decode(encode_picture(grey))[:, :, 0], grey >> 8)


HOSTILE = {
    "empty": (b"", "not one of PNG"),
    "text": (b"#!/bin/sh", "not one of PNG"),
    "bomb": (png_of(400_000, 400_000), "picture: image cannot be read: more than"),
    "over the limit": (png_of(400, 300), "picture has too many pixels or none (got 400 x 300"),
    "no pixels": (png_of(0, 5), "picture"),
    "cut short": (encode_picture(random_pixels(50, 50))[:3000], "cannot be read"),
    "large file": (bytes((1 << 20) + 1), "image file is too large"),
    "program": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not one of PNG"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_case_73_a_hostile_file_is_one_error_that_names_it(case):
    """FE-14"""
    data, text = HOSTILE[case]
    with pytest.raises(RequestError) as caught:
        decode(data)
    message = str(caught.value)
    assert message.startswith("picture: ")
    assert text in message
    assert "\n" not in message
