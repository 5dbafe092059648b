"""What other libraries store and read: a program, run in a process of its own.

    python library_exports.py FOLDER

FOLDER/plain.safetensors holds matrices by module name. Every exporter quantises all of them and
writes FOLDER/NAME.safetensors: `stored/TENSOR` as a checkpoint has it, `decoded/MODULE` as the
same library reads that back, float32. Every checkpoint in FOLDER/checkpoints is loaded by
transformers; FOLDER/NAME.safetensors holds its weights, float32. FOLDER/swizzled.safetensors has
the planes of an artifact's NVFP4 tensor; FOLDER/unswizzled.safetensors what torchao reads there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

Parts = dict[str, torch.Tensor]
LARGEST = 6 * 448


def compressed_tensors_nvfp4(matrix: torch.Tensor) -> tuple[Parts, torch.Tensor]:
    from compressed_tensors.compressors.nvfp4 import NVFP4PackedCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    weights = QuantizationArgs(
        num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True,
        scale_dtype=torch.float8_e4m3fn,
    )  # fmt: skip
    scheme = QuantizationScheme(targets=["Linear"], weights=weights)
    divisor = generate_gparam(matrix.min(), matrix.max())
    blocks = matrix.reshape(len(matrix), -1, 16)
    scale, _ = calculate_qparams(blocks.amin(-1), blocks.amax(-1), weights, global_scale=divisor)
    parts = {"weight": matrix, "weight_scale": scale, "weight_global_scale": divisor.reshape(1)}
    parts = NVFP4PackedCompressor.compress(parts, scheme)
    # Without a dtype of its own the library would multiply in bfloat16.
    decoded = NVFP4PackedCompressor.decompress(parts, scheme)["weight"]
    parts["input_global_scale"] = torch.tensor([LARGEST / 5.0])
    return parts, decoded


def _compressed_tensors_fp8(strategy: str) -> Callable[[torch.Tensor], tuple[Parts, torch.Tensor]]:
    def export(matrix: torch.Tensor) -> tuple[Parts, torch.Tensor]:
        from compressed_tensors.compressors import FloatQuantizationCompressor
        from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
        from compressed_tensors.quantization.utils import calculate_qparams

        block = [128, 128] if strategy == "block" else None
        weights = QuantizationArgs(
            num_bits=8, type="float", strategy=strategy, symmetric=True, block_structure=block
        )
        scheme = QuantizationScheme(targets=["Linear"], weights=weights)
        low, high = (_reduce(strategy, matrix, f) for f in (torch.amin, torch.amax))
        scale, _ = calculate_qparams(low, high, weights)
        scale = scale.float() if strategy == "block" else scale.to(torch.bfloat16)
        parts = FloatQuantizationCompressor.compress(
            {"weight": matrix.to(scale.dtype), "weight_scale": scale}, scheme
        )
        wide = dict(parts, weight_scale=scale.float())
        return parts, FloatQuantizationCompressor.decompress(wide, scheme)["weight"]

    return export


def _reduce(strategy: str, matrix: torch.Tensor, function: Callable) -> torch.Tensor:
    if strategy == "tensor":
        return function(matrix).reshape(1)
    if strategy == "channel":
        return function(matrix, dim=1, keepdim=True)
    n, k = matrix.shape
    padded = torch.nn.functional.pad(matrix, (0, -k % 128, 0, -n % 128))
    return function(padded.reshape(-(-n // 128), 128, -(-k // 128), 128), dim=(1, 3))


def modelopt_nvfp4(matrix: torch.Tensor) -> tuple[Parts, torch.Tensor]:
    from modelopt.torch.quantization.qtensor.nvfp4_tensor import NVFP4QTensor

    tensor, scale, multiplier = NVFP4QTensor.quantize(matrix, 16)
    decoded = tensor.dequantize(
        dtype=torch.float32, scale=scale, double_scale=multiplier, block_sizes={-1: 16}
    )
    parts = {"weight": tensor._quantized_data, "weight_scale": scale, "weight_scale_2": multiplier}
    return parts | {"input_scale": torch.tensor(5.0 / LARGEST)}, decoded


def modelopt_fp8(matrix: torch.Tensor) -> tuple[Parts, torch.Tensor]:
    from modelopt.torch.quantization.qtensor.fp8_tensor import FP8QTensor

    tensor, scale = FP8QTensor.quantize(matrix)
    decoded = tensor.dequantize(dtype=torch.float32, scale=scale)
    return {"weight": tensor._quantized_data, "weight_scale": scale}, decoded


def torchao_nvfp4(matrix: torch.Tensor) -> tuple[Parts, torch.Tensor]:
    """torchao has no checkpoint form of its own; its parts are stored as ModelOpt's."""
    from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor, per_tensor_amax_to_scale

    multiplier = per_tensor_amax_to_scale(matrix.abs().max())
    tensor = NVFP4Tensor.to_nvfp4(matrix, per_tensor_scale=multiplier)
    codes, scale = tensor.qdata.view(torch.uint8), tensor.scale.reshape(len(matrix), -1)
    parts = {"weight": codes, "weight_scale": scale, "weight_scale_2": multiplier}
    return parts, tensor.dequantize(torch.float32)


def read_swizzled(planes: Parts) -> torch.Tensor:
    """Decode an artifact's NVFP4 tensor, block scales in the layout of tensor cores."""
    from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor

    rows, half = planes["codes"].shape
    scale_rows, scale_columns = -(-rows // 128) * 128, -(-half // 32) * 4
    scales = planes["scales"].view(torch.float8_e4m3fn).reshape(scale_rows, scale_columns)
    multiplier = 1 / planes["divisor"]
    tensor = NVFP4Tensor(planes["codes"], scales, 16, torch.float32, multiplier, None, True, False)
    return tensor.dequantize(torch.float32)


EXPORTERS = {
    "compressed_tensors_nvfp4": compressed_tensors_nvfp4,
    "compressed_tensors_row": _compressed_tensors_fp8("channel"),
    "compressed_tensors_tensor": _compressed_tensors_fp8("tensor"),
    "compressed_tensors_block": _compressed_tensors_fp8("block"),
    "modelopt_nvfp4": modelopt_nvfp4,
    "modelopt_fp8": modelopt_fp8,
    "torchao_nvfp4": torchao_nvfp4,
}


def load_with_transformers(folder: Path) -> Parts:
    """Return the weights of a checkpoint under their official names, dequantised."""
    import transformers

    config = json.loads((folder / "config.json").read_text())
    options = {}
    method = config.get("quantization_config", {}).get("quant_method")
    if method == "fp8":
        options["quantization_config"] = transformers.FineGrainedFP8Config(dequantize=True)
    elif method == "compressed-tensors":
        chosen = transformers.CompressedTensorsConfig(run_compressed=False)
        options["quantization_config"] = chosen
    kind = getattr(transformers, config["architectures"][0])
    model = kind.from_pretrained(folder, dtype=torch.float32, **options)
    return {name: tensor.detach().float() for name, tensor in model.state_dict().items()}


def main(folder: Path) -> None:
    plain = load_file(folder / "plain.safetensors")
    for name, export in EXPORTERS.items():
        found = {}
        for module, matrix in plain.items():
            parts, decoded = export(matrix)
            found |= {f"stored/{module}.{part}": tensor for part, tensor in parts.items()}
            found[f"decoded/{module}"] = decoded.float()
        _save(found, folder / f"{name}.safetensors")
    for checkpoint in sorted((folder / "checkpoints").iterdir()):
        _save(load_with_transformers(checkpoint), folder / f"{checkpoint.name}.safetensors")
    planes = load_file(folder / "swizzled.safetensors")
    _save({"values": read_swizzled(planes)}, folder / "unswizzled.safetensors")


def _save(tensors: Parts, path: Path) -> None:
    # Tied weights share their memory, which the file format refuses.
    save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
