"""How a checkpoint stores one weight, decided from the tensors that are there (S-50 to S-60).

`quantization_config` is never asked: files exist whose config names the wrong tensors, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ninfer_formats.errors import NinferError, UsageError
from ninfer_tools.convert.sources.checkpoint import Checkpoint
from ninfer_tools.convert.sources.safetensors_file import StoredTensor

DIRECT, NVFP4 = "direct", "nvfp4"
FP8_ROW, FP8_TENSOR, FP8_BLOCK = "fp8_row", "fp8_tensor", "fp8_block"
KINDS = (DIRECT, NVFP4, FP8_ROW, FP8_TENSOR, FP8_BLOCK)
DIRECT_TYPES = ("BF16", "F16", "F32")
SUPPORTED = (
    "BF16, FP16 or FP32 weights, NVFP4 of compressed-tensors or ModelOpt, or FP8 E4M3FN with row, "
    "tensor or 128x128 block scales"
)
FP8_BLOCK_SIZE = 128
NVFP4_BLOCK_SIZE = 16
# Written by calibration beside weights; they change no weight, and only those that an NVFP4
# weight uses are read.
CALIBRATION = frozenset(
    [
        "k_scale",
        "v_scale",
        "q_scale",
        "prob_scale",
        "input_scale",
        "output_scale",
        "input_global_scale",
        "weight_scale",
        "weight_scale_2",
        "weight_global_scale",
        "weight_shape",
        "k_zero_point",
        "v_zero_point",
        "input_zero_point",
        "inv_freq",
    ]
)

_SCALES = ("weight_scale", "weight_scale_inv")
# NVFP4 of compressed-tensors divides by them, that of ModelOpt multiplies.
_GLOBAL_SCALES = ("weight_global_scale", "weight_scale_2")
_INPUT_SCALES = ("input_global_scale", "input_scale")
_WEIGHTS = ("weight", "weight_packed", "qweight")
_COMPANIONS = (
    *_WEIGHTS,
    "weight_scale",
    "weight_scale_2",
    "weight_scale_inv",
    "weight_global_scale",
    "input_global_scale",
    "input_scale",
    "weight_zero_point",
    "weight.absmax",
    "scales",
    "g_idx",
)
# Further parts of forms that are refused.
_FOREIGN_PARTS = (
    "qzeros",
    "biases",
    "weight_g_idx",
    "weight.quant_map",
    "weight.nested_absmax",
    "weight.nested_quant_map",
    "weight.quant_state.bitsandbytes__nf4",
)
Found = Mapping[str, StoredTensor]


@dataclass(frozen=True, slots=True)
class Storage:
    """One weight as stored.

    `shape` is that of the weight, not of its codes. `scales` are those of blocks or rows.
    `weight_scalar` and `input_scalar` are the global scales of NVFP4: divisors, or multipliers
    where `multiplies` (ModelOpt).
    """

    kind: str
    shape: tuple[int, ...]
    values: StoredTensor
    scales: StoredTensor | None = None
    weight_scalar: StoredTensor | None = None
    input_scalar: StoredTensor | None = None
    multiplies: bool = False

    def scale_tensor(self) -> StoredTensor:
        """Return `scales`; raises UsageError for a weight without."""
        if self.scales is None:
            raise UsageError("weight has no scales", where=self.values.name)
        return self.scales

    @property
    def tensors(self) -> tuple[StoredTensor, ...]:
        """The stored tensors that make the weight, the one with its values first."""
        every = (self.values, self.scales, self.weight_scalar, self.input_scalar)
        return tuple(tensor for tensor in every if tensor is not None)


def parts_of(name: str) -> list[str]:
    """Return the names of all tensors that could make the weight `name`."""
    module = name.removesuffix(".weight")
    # Stacked experts have no module of their own: transformers puts an underscore instead.
    sign = "." if module != name else "_"
    suffixes = (*_COMPANIONS, *_FOREIGN_PARTS, "scale_inv", "scale")
    return [name, *(f"{module}{sign}{suffix}" for suffix in suffixes)]


def decide_storage(checkpoint: Checkpoint, name: str) -> Storage | None:
    """Return how the weight `name` (as an unquantised checkpoint calls it) is stored.

    None when the checkpoint does not have it. Raises NinferError naming tensor and file for a
    form that is not supported, a scale that is missing or has the wrong shape, and two forms of
    the same weight side by side.
    """
    module = name.removesuffix(".weight")
    stored = checkpoint.tensors
    if module == name:
        found = {"weight": stored[name]} if name in stored else {}
    else:
        named = {suffix: stored.get(f"{module}.{suffix}") for suffix in _COMPANIONS}
        found = {suffix: tensor for suffix, tensor in named.items() if tensor is not None}
    weights = [suffix for suffix in _WEIGHTS if suffix in found]
    if not weights:
        return None
    reading = _Reading(checkpoint, module, found, found[weights[0]])
    if len(weights) > 1:
        raise reading.refuse("weight is stored twice", " and ".join(weights), "one of them")
    return reading.decide()


@dataclass(frozen=True)
class _Reading:
    """The tensors found for one module and the one that holds its values."""

    checkpoint: Checkpoint
    module: str
    found: Found
    values: StoredTensor

    def refuse(
        self, what: str, got: object, want: str, tensor: StoredTensor | None = None
    ) -> NinferError:
        tensor = tensor or self.values
        path = self.checkpoint.path_of(tensor)
        return NinferError(what, path=path, where=tensor.name, got=got, want=want)

    def unsupported(self, form: str) -> NinferError:
        return self.refuse(f"{form} is not supported", self.values.dtype, SUPPORTED)

    def decide(self) -> Storage:
        if "qweight" in self.found:
            raise self.unsupported(_name_int4(self.found))
        if "weight_packed" in self.found:
            return self._decide_packed()
        decide = _BY_DTYPE.get(self.values.dtype)
        if decide is None:
            raise self.unsupported(_name_dtype(self.values.dtype))
        return decide(self)

    def _decide_packed(self) -> Storage:
        if self.values.dtype == "I32":
            raise self.unsupported("compressed-tensors pack-quantized int4 or int8")
        if self.values.dtype != "U8":
            raise self.unsupported("this packed weight")
        scales = self.found.get("weight_scale")
        if scales is not None and scales.dtype in ("U8", "F8_E8M0"):
            raise self.unsupported("MXFP4")
        return self.nvfp4(_GLOBAL_SCALES[0], _INPUT_SCALES[0], multiplies=False)

    def nvfp4(self, weight_scalar: str, input_scalar: str, multiplies: bool) -> Storage:
        if len(self.values.shape) != 2:
            raise self.refuse("NVFP4 weight is not a matrix", list(self.values.shape), "[N, K/2]")
        # Which of two is meant nobody can tell, and the weights differ by their quotient.
        self.refuse_two(_GLOBAL_SCALES)
        self.refuse_two(_INPUT_SCALES)
        self.refuse_two(_SCALES)
        rows, columns = self.values.shape[0], 2 * self.values.shape[1]
        scales = self.require("weight_scale")
        want = (rows, columns // NVFP4_BLOCK_SIZE)
        if scales.dtype != "F8_E4M3" or scales.shape != want or columns % NVFP4_BLOCK_SIZE:
            raise self.wrong_scale(scales, f"F8_E4M3 {list(want)}")
        return Storage(
            NVFP4, (rows, columns), self.values, scales,
            self.require_scalar(weight_scalar), self.optional_scalar(input_scalar), multiplies,
        )  # fmt: skip

    def refuse_two(self, suffixes: tuple[str, ...]) -> None:
        two = [suffix for suffix in suffixes if suffix in self.found]
        if len(two) > 1:
            raise self.refuse("weight has two scales", " and ".join(two), "one of them")

    def require(self, suffix: str, want: str | None = None) -> StoredTensor:
        if suffix not in self.found:
            raise NinferError(
                "scale is missing", path=self.checkpoint.path_of(self.values),
                where=f"{self.module}.{suffix}", want=want, remedy="download the checkpoint again",
            )  # fmt: skip
        return self.found[suffix]

    def require_scalar(self, suffix: str) -> StoredTensor:
        return self.check_scalar(self.require(suffix))

    def optional_scalar(self, suffix: str) -> StoredTensor | None:
        return self.check_scalar(self.found[suffix]) if suffix in self.found else None

    def check_scalar(self, tensor: StoredTensor) -> StoredTensor:
        if tensor.dtype not in DIRECT_TYPES or tensor.elements != 1:
            raise self.wrong_scale(tensor, "F32 [] or [1]")
        return tensor

    def wrong_scale(self, tensor: StoredTensor, want: str) -> NinferError:
        got = f"{tensor.dtype} {list(tensor.shape)} for {self.values.dtype} "
        got += f"{list(self.values.shape)}"
        return self.refuse("scale does not fit its weight", got, want, tensor)


def _decide_direct(reading: _Reading) -> Storage:
    # Scales beside it are left over from calibration: the weight itself was never quantised.
    return Storage(DIRECT, reading.values.shape, reading.values)


def _decide_bytes(reading: _Reading) -> Storage:
    if "weight.absmax" in reading.found:
        raise reading.unsupported("bitsandbytes 4-bit")
    if "weight_scale" not in reading.found and "weight_scale_2" not in reading.found:
        raise reading.unsupported("a U8 weight without scales")
    return reading.nvfp4(_GLOBAL_SCALES[1], _INPUT_SCALES[1], multiplies=True)


def _decide_fp8(reading: _Reading) -> Storage:
    values, found = reading.values, reading.found
    if len(values.shape) != 2:
        raise reading.unsupported("FP8 for anything but a matrix, such as stacked experts,")
    reading.refuse_two((*_SCALES, *_GLOBAL_SCALES))
    if "weight_zero_point" in found:
        raise reading.unsupported("FP8 with zero points")
    scales = found.get("weight_scale_inv") or reading.require(
        "weight_scale", "weight_scale or weight_scale_inv"
    )
    kind = _fp8_kind(values.shape, scales.shape)
    if kind is None or scales.dtype not in DIRECT_TYPES:
        n, k = values.shape
        blocks = [-(-n // FP8_BLOCK_SIZE), -(-k // FP8_BLOCK_SIZE)]
        raise reading.wrong_scale(scales, f"BF16 or F32 [{n}, 1], [{n}], [1], [] or {blocks}")
    return Storage(kind, values.shape, values, scales)


def _fp8_kind(shape: tuple[int, ...], scale: tuple[int, ...]) -> str | None:
    n, k = shape
    if scale in ((), (1,), (1, 1)):
        return FP8_TENSOR
    if scale in ((n,), (n, 1)):
        return FP8_ROW
    if scale == (-(-n // FP8_BLOCK_SIZE), -(-k // FP8_BLOCK_SIZE)):
        return FP8_BLOCK
    return None


_BY_DTYPE: Mapping[str, Callable[[_Reading], Storage]] = {
    **dict.fromkeys(DIRECT_TYPES, _decide_direct),
    "U8": _decide_bytes,
    "F8_E4M3": _decide_fp8,
}


def _name_int4(found: Found) -> str:
    """Tell GPTQ [K/8, N] from AWQ [K, N/8] by the columns of the codes."""
    codes, scales = found["qweight"].shape, found.get("scales")
    if "g_idx" in found or (scales is not None and scales.shape[-1:] == codes[-1:]):
        return "GPTQ int4"
    return "AWQ int4"


def _name_dtype(dtype: str) -> str:
    return {"I8": "int8", "F8_E5M2": "FP8 E5M2"}.get(dtype, f"a weight of type {dtype}")
