"""What a file that is not a `.ninfer` artifact looks like, from its first bytes."""

from __future__ import annotations

SNIFF_BYTES = 64

_SIGNATURES = (
    (b"GGUF", "a GGUF file", "convert the original safetensors checkpoint instead"),
    (b"PK\x03\x04", "a zip archive (perhaps a PyTorch checkpoint)", "unpack it first"),
    (b"\x1f\x8b", "a gzip archive", "unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive", "unpack it first"),
    (b"version https://git-lfs", "a git-lfs pointer: the real file was not downloaded", "lfs"),
)


def describe_foreign(head: bytes, size: int) -> tuple[str, str]:
    """Return (what the file looks like, what to do) for at most 64 first bytes and a size."""
    if size == 0:
        return "an empty file", "download it again"
    if len(head) < 16 and (b"NINFER\0" + head[7:8]).startswith(head[:8]):
        return f"a truncated .ninfer file of {size} bytes", "download it again"
    for signature, text, action in _SIGNATURES:
        if head.startswith(signature):
            return (
                text,
                "fetch it with `git lfs pull` or `hf download`" if action == "lfs" else action,
            )
    if _is_safetensors(head):
        return "a safetensors file", "convert it with `ninfer convert`"
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype", b"<html", b"<head", b"<?xml")):
        return "an HTML or XML page (a login or error page?)", "download the file itself"
    if text.startswith((b"{", b"[")):
        return "a JSON text", "name the artifact, not a sidecar"
    if not any(head):
        return "a file of zeros (an unfinished download?)", "download it again"
    return "an unknown file", "check the path"


def _is_safetensors(head: bytes) -> bool:
    declared = int.from_bytes(head[:8], "little")
    return len(head) > 8 and 0 < declared < 2**32 and head[8:].lstrip(b" ").startswith(b"{")
