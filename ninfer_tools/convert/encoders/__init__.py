"""Fast encoders: the codecs of `ninfer_formats` in torch, on CPU and CUDA, row block by row block.

Every byte equals that of `ninfer_formats.tensors.encode_tensor`. Three rules keep it so on every
device: each operation is one eager torch operation, so nothing is fused or contracted; sums run
in a written-out order; and divisions never have a Python number below the line, which CUDA
would turn into a multiplication.
"""

from ninfer_tools.convert.encoders.row_encoder import Piece, RowEncoder
from ninfer_tools.convert.encoders.tile_workers import TileWorkers

__all__ = ["Piece", "RowEncoder", "TileWorkers"]
