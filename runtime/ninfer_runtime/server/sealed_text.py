"""Text that a client keeps for the server without reading it: nothing in it is secret."""

from __future__ import annotations

import base64
import binascii
import zlib

_MARK = "ninfer1."
_LARGEST = 1 << 24  # bytes; a seal of others could unfold to anything


def seal(text: str) -> str:
    """Return `text` in letters, digits and signs that travel everywhere."""
    return _MARK + base64.b64encode(zlib.compress(text.encode())).decode("ascii")


def unseal(sealed: str | None) -> str | None:
    """Return the text of `seal`, None for whatever else it may be."""
    if sealed is None or not sealed.startswith(_MARK):
        return None
    try:
        data = base64.b64decode(sealed.removeprefix(_MARK), validate=True)
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(data, _LARGEST)
        return text.decode() if unpacker.eof else None
    except (binascii.Error, ValueError, zlib.error):
        return None
