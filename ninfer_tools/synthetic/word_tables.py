"""Tables that turn random 16-bit words into legal stored words of each numeric format."""

from __future__ import annotations

import functools

import numpy as np

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs import rounding
from ninfer_tools.synthetic.distributions import TABLE_SIZE, normal_quantiles

# The two words of E4M3FN that are not numbers, and the zeros that stand in for them.
_FP8_REPLACED = {0x7F: 0x00, 0xFF: 0x80}


def bf16_words(values: np.ndarray) -> np.ndarray:
    """Return uint16 words of finite values, rounded to nearest even."""
    return rounding.round_to_bf16(np.asarray(values, np.float32))


@functools.cache
def code_table(format: str) -> np.ndarray | None:
    """Return uint16 [65536] for the base or code plane of a format; None: any word is legal.

    Codes are drawn uniformly, except that the one code without a positive partner gives way to a
    legal one. Without that a projection would add the same small offset to all its outputs, and
    the sum over thousands of inputs would drown the signal.
    """
    table = _code_bytes(format)
    return None if table is None else pair_table(table)


@functools.cache
def code_rms(format: str) -> float:
    """Return the root mean square of the decoded codes, before any scale."""
    if format == nf.NVFP4:
        values = rounding.E2M1_VALUES
    elif format == nf.FP8:
        values = rounding.E4M3_VALUES[_require_bytes(format)]
    elif format == nf.Q8:
        values = _require_bytes(format).view(np.int8)
    else:
        values = _grouped_values(format)
    return float(np.sqrt(np.mean(values.astype(np.float64) ** 2)))


@functools.cache
def block_scale_words() -> np.ndarray:
    """Return uint8 [256]: E4M3FN block scales as an absmax encoder spreads them, all legal.

    Fifteen of sixteen are normal around 0x73 (176), between 0x67 and 0x7E; the rest walk through
    the small words, subnormals included.
    """
    deviates = normal_quantiles()[TABLE_SIZE // 480 :: TABLE_SIZE // 240][:240]
    usual = np.clip(np.round(0x73 + 4 * deviates), 0x01, 0x7E).astype(np.uint8)
    rare = np.linspace(0x01, 0x66, 16).astype(np.uint8)
    words = np.concatenate([usual, rare])
    words.setflags(write=False)
    return words


@functools.cache
def block_scale_table() -> np.ndarray:
    """Return uint16 [65536], read-only: both bytes of a word mapped to block scales."""
    return pair_table(block_scale_words())


@functools.cache
def block_scale_rms() -> float:
    """Return the root mean square of the block scales."""
    return float(
        np.sqrt(np.mean(np.square(rounding.E4M3_VALUES[block_scale_words()], dtype=float)))
    )


def positive_scales(rms: float) -> np.ndarray:
    """Return float64 [65536] of scales spread evenly over 0.5..1.5 of one value, with that rms."""
    factors = 0.5 + (np.arange(TABLE_SIZE) + 0.5) / TABLE_SIZE
    return factors * (rms / np.sqrt(np.mean(factors**2)))


def pair_table(byte_words: np.ndarray) -> np.ndarray:
    """Return uint16 [65536], read-only: both bytes of a word through a table of 256 bytes."""
    wide = byte_words.astype(np.uint16)
    table = (wide[None, :] | (wide[:, None] << 8)).ravel()
    # Tables are made once and shared.
    table.setflags(write=False)
    return table


def _grouped_values(format: str) -> np.ndarray:
    """Return every code of a 4- to 6-bit format as often as it is drawn."""
    low = (_require_bytes(format) & 15)[:16].astype(np.int64)
    high_bits = nf.FORMATS[format].bits - 4
    if high_bits == 0:
        return np.where(low > 7, low - 16, low)
    # The high bits are a two's complement multiple of 16 on top of the base nibble.
    high = np.arange(-(1 << high_bits) // 2, (1 << high_bits) // 2)
    return (low[:, None] + 16 * high[None, :]).ravel()


def _require_bytes(format: str) -> np.ndarray:
    table = _code_bytes(format)
    return np.arange(256, dtype=np.uint8) if table is None else table


def _code_bytes(format: str) -> np.ndarray | None:
    table = np.arange(256, dtype=np.uint8)
    if format == nf.Q4:
        return _replace_nibble(table, 8, 0)
    if format in (nf.Q5, nf.Q6):
        return _replace_nibble(table, 0, 8)
    if format == nf.Q8:
        table[0x80] = 0
        return table
    if format == nf.FP8:
        for word, replacement in _FP8_REPLACED.items():
            table[word] = replacement
        return table
    return None


def _replace_nibble(table: np.ndarray, old: int, new: int) -> np.ndarray:
    low, high = table & 15, table >> 4
    low, high = np.where(low == old, new, low), np.where(high == old, new, high)
    return (low | (high << 4)).astype(np.uint8)
