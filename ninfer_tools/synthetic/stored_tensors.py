"""How a checkpoint stores a tensor: plain, row-scaled FP8, or packed NVFP4."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ninfer_formats import numeric_formats as nf
from ninfer_tools.synthetic import word_tables
from ninfer_tools.synthetic.checkpoint_sections import CheckpointTensor
from ninfer_tools.synthetic.distributions import choose_distribution
from ninfer_tools.synthetic.payloads import BlockWorker, draw_plane
from ninfer_tools.synthetic.plane_fills import PlaneFill, plan_fills, weight_divisor
from ninfer_tools.synthetic.safetensors_file import Entry
from ninfer_tools.synthetic.seeds import divisor_name, name_key, seed_sequence

_PLAIN_TYPES = {nf.BF16: "BF16", nf.FP32: "F32"}


class TensorStore:
    """Makes the safetensors entries of one checkpoint from a seed."""

    def __init__(self, seed: int, worker: BlockWorker) -> None:
        self._seed, self._worker = seed, worker

    def entries(self, tensor: CheckpointTensor, format: str) -> Iterator[Entry]:
        """Yield what the checkpoint holds for a tensor stored in `format`.

        NVFP4 and FP8 follow compressed-tensors: `weight_packed`, `weight_scale`,
        `weight_global_scale` and `input_global_scale` (both divisors), or `weight` and
        `weight_scale`. Matrices that read the same input share all divisors.
        """
        if format == nf.NVFP4:
            yield from self._nvfp4_entries(tensor)
        elif format == nf.FP8:
            yield from self._fp8_entries(tensor)
        else:
            dtype, layout = _PLAIN_TYPES[format], nf.CONTIGUOUS
            yield self._entry(tensor, tensor.name, dtype, tensor.shape, (format, layout, 0))

    def _nvfp4_entries(self, tensor: CheckpointTensor) -> Iterator[Entry]:
        (n, k), name = tensor.shape, tensor.module
        codes = (nf.NVFP4, nf.BLOCK_SCALE, 0)
        yield self._entry(tensor, f"{name}.weight_packed", "U8", (n, k // 2), codes)
        yield self._entry(tensor, f"{name}.weight_scale", "F8_E4M3", (n, k // 16), None)
        divisor = np.float32(weight_divisor(tensor.parameter, tensor.shape))
        yield _scalar(f"{name}.weight_global_scale", divisor)
        yield _scalar(f"{name}.input_global_scale", self._input_divisor(tensor.site))

    def _fp8_entries(self, tensor: CheckpointTensor) -> Iterator[Entry]:
        (n, k), name = tensor.shape, tensor.module
        codes, scales = (nf.FP8, nf.ROW_SCALE, 0), (nf.FP8, nf.ROW_SCALE, 1)
        yield self._entry(tensor, f"{name}.weight", "F8_E4M3", (n, k), codes)
        yield self._entry(tensor, f"{name}.weight_scale", "BF16", (n, 1), scales)

    def _input_divisor(self, site: str) -> np.float32:
        usual = choose_distribution("input_scale_divisor", ())
        key = name_key(self._seed, divisor_name(site))
        position = np.random.Generator(np.random.SFC64(seed_sequence(key))).random()
        return np.float32(usual.low + (usual.high - usual.low) * position)

    def _entry(
        self,
        tensor: CheckpointTensor,
        name: str,
        dtype: str,
        shape: tuple[int, ...],
        plane: tuple[str, str, int] | None,
    ) -> Entry:
        """Return an entry that holds one plane (format, layout, index) of the encoded tensor.

        None stands for the NVFP4 block scales, which files hold row by row: the swizzle belongs
        to the artifact's layout.
        """

        def draw() -> Iterator[np.ndarray]:
            if plane is None:
                table = word_tables.block_scale_table()
                fill = PlaneFill("scales", 0, shape[0], shape[1], table)
            else:
                format, layout, index = plane
                fill = plan_fills(format, layout, tensor.shape, tensor.parameter)[index]
            return draw_plane(fill, name_key(self._seed, name), self._worker)

        return Entry(name, dtype, shape, draw)


def _scalar(name: str, value: np.float32) -> Entry:
    words = np.array([value], "<f4").view(np.uint8)
    return Entry(name, "F32", (1,), lambda: [words])
