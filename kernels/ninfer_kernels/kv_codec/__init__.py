"""The paged key/value cache of one attention layer and its storage kinds."""

from ninfer_kernels.kv_codec.op import append_kv, copy_pages
from ninfer_kernels.kv_codec.pages import (
    KV_KINDS,
    PAGE_TOKENS,
    KVPages,
    allocate_pages,
    bytes_per_token,
)
from ninfer_kernels.kv_codec.reference import decode_rows, encode_rows, read_kv

__all__ = [
    "KV_KINDS",
    "PAGE_TOKENS",
    "KVPages",
    "allocate_pages",
    "append_kv",
    "bytes_per_token",
    "copy_pages",
    "decode_rows",
    "encode_rows",
    "read_kv",
]
