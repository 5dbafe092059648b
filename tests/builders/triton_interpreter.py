"""Repairs of the interpreter of Triton 3.6 and later, which kernels are tested in.

Without them bfloat16 values that round up into the next power of two are halved, products of
bfloat16 tiles multiply the bit patterns, and numpy 2.4 refuses one-element arrays as numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from numpy.typing import NDArray
from triton.runtime import interpreter


def repair_interpreter() -> None:
    """Install the repairs; once per process, before the first kernel runs."""
    builder = interpreter.InterpreterBuilder
    cast, convert, dot = builder.cast_impl, builder.create_fp_to_fp, builder.create_dot
    patch = interpreter._patch_lang_tensor

    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        # A handle counts as false when it holds a zero.
        converted = _convert_bf16(src, dst_type)
        return cast(self, src, dst_type) if converted is None else converted

    def create_fp_to_fp(self: Any, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        converted = _convert_bf16(src, dst_type)
        return convert(self, src, dst_type, rounding_mode) if converted is None else converted

    def create_dot(self: Any, a: Any, b: Any, *others: Any) -> Any:
        return dot(self, _widen_operand(a), _widen_operand(b), *others)

    def patch_tensor(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    builder.cast_impl = cast_impl
    builder.create_fp_to_fp = create_fp_to_fp
    builder.create_dot = create_dot  # pyright: ignore[reportAttributeAccessIssue]
    interpreter._patch_lang_tensor = patch_tensor


def _convert_bf16(src: Any, dst_type: Any) -> Any | None:
    """Return `src` converted between bfloat16 and float32 or an integer, None for other pairs."""
    source, target = src.dtype.scalar, dst_type.scalar
    if source == tl.bfloat16 and target == tl.float32:
        return interpreter.TensorHandle(_widen(src.data), tl.float32)
    if target == tl.bfloat16 and source != tl.bfloat16:
        return interpreter.TensorHandle(_round(src.data.astype(np.float32)), tl.bfloat16)
    return None


def _widen_operand(operand: Any) -> Any:
    if operand.dtype.scalar != tl.bfloat16:
        return operand
    return interpreter.TensorHandle(_widen(operand.data), tl.float32)


def _widen(words: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (words.astype(np.uint32) << 16).view(np.float32)


def _round(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Return bfloat16 words, to nearest and ties to even; a NaN stays one."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)
