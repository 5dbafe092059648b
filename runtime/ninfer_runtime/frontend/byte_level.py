"""The byte-level alphabet: every byte is one printable character of a token's spelling."""

from __future__ import annotations


def spelling_bytes() -> dict[str, int]:
    """Return character -> byte.

    Printable bytes of Latin-1 (33-126, 161-172, 174-255) spell themselves; the others, in order,
    are the characters from 256 on.
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(256 + index): byte for index, byte in enumerate(others)}


def spell_out(spelling: str, table: dict[str, int]) -> bytes:
    """Return the bytes of a token; one that is not spelled in the alphabet is plain text."""
    if all(character in table for character in spelling):
        return bytes(table[character] for character in spelling)
    return spelling.encode()
