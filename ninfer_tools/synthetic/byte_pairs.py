"""A byte-level BPE vocabulary made from a word list, scripts and pseudo words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ninfer_formats.errors import UsageError

# The most frequent pieces first: an earlier merge wins when a text is encoded.
_WORDS = """
the of and to in a is that for it was on with as be by this are you not from or at have an they
which one were all we can has there if more when will would who so no out up into do any your what
them some could time than other then its only new these may like now over such our two use how
been first way even because where after just should people long through each between part made
def return self import class while else elif none true false print len range str int float list
dict set lambda yield try except raise const let var function void static public private string
null async await error value name type data file path size index count user system assistant think
answer question example number model token text image video
"""

_LETTERS = "etaoinshrdlcumwfgypbvkjxqz"
# (first, last) code points of scripts whose characters should be one token each.
_SCRIPTS = (
    (0x00A0, 0x017F),
    (0x0391, 0x03C9),
    (0x0410, 0x044F),
    (0x0600, 0x064A),
    (0x0E01, 0x0E3A),
    (0x0905, 0x0939),
    (0x2010, 0x2027),
    (0x3001, 0x3002),
    (0x3041, 0x30FE),
    (0xFF01, 0xFF1F),
    (0x4E00, 0x9FA5),
    (0xAC00, 0xD7A3),
    (0x1F300, 0x1F64F),
)
_MAX_LETTERS = 12


def byte_alphabet() -> list[str]:
    """Return the printable character that stands for each byte, the mapping of byte-level BPE.

    Printable Latin-1 characters stand for themselves, the other 68 bytes for U+0100 onwards.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(b) if b in printable else chr(next(others)) for b in range(256)]


class MergeList:
    """Grows a vocabulary by merges; each result is new and both its halves are known."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._alphabet = byte_alphabet()
        self.tokens: dict[str, int] = {c: i for i, c in enumerate(sorted(self._alphabet))}
        self.merges: list[tuple[str, str]] = []

    @property
    def full(self) -> bool:
        return len(self.tokens) >= self.size

    def add(self, left: str, right: str) -> None:
        """Add one merge unless its result exists already or the vocabulary is full."""
        if not self.full and left + right not in self.tokens:
            self.tokens[left + right] = len(self.tokens)
            self.merges.append((left, right))

    def add_chain(self, text: bytes) -> None:
        """Add the merges that build a text from left to right."""
        characters = [self._alphabet[b] for b in text]
        for end in range(1, len(characters)):
            self.add("".join(characters[:end]), characters[end])


def build_merges(size: int, seed: int) -> MergeList:
    """Return a vocabulary of exactly `size` tokens, the 256 bytes included.

    The same size and seed give the same list. Raises UsageError when the pieces run out, far
    above the size of any vocabulary of the family.
    """
    merges = MergeList(size)
    generator = np.random.Generator(np.random.SFC64([seed, size]))
    for text in _common_texts():
        merges.add_chain(text)
    _add_letter_pairs(merges, generator)
    for first, last in _SCRIPTS:
        for point in range(first, last + 1):
            merges.add_chain(chr(point).encode())
        if merges.full:
            return merges
    _add_pseudo_words(merges, generator)
    if not merges.full:
        raise UsageError("too many tokens", got=size, want=f"<= {len(merges.tokens)}")
    return merges


def _common_texts() -> Iterator[bytes]:
    for length in (2, 4, 8, 16):
        yield b" " * length
    yield from (b"\n\n", b"\r\n", b"):", b'",', b"->", b"==", b"//", b"()", b" =", b" (", b".\n")
    for word in _WORDS.split():
        yield b" " + word.encode()
        yield word.encode()


def _add_letter_pairs(merges: MergeList, generator: np.random.Generator) -> None:
    pairs = [(a, b) for a in _LETTERS for b in _LETTERS]
    for i in generator.permutation(len(pairs)):
        merges.add(*pairs[i])
    for a, b in pairs:
        merges.add("Ġ", a)
        merges.add("Ġ" + a, b)


def _add_pseudo_words(merges: MergeList, generator: np.random.Generator) -> None:
    tails = [
        t for t in merges.tokens if t.isascii() and t.isalpha() and len(t) <= _MAX_LETTERS // 2
    ]
    heads = tails + ["Ġ" + t for t in tails if "Ġ" + t in merges.tokens]
    # A few draws are duplicates; twice the room is always enough below the number of pairs.
    room = min(2 * (merges.size - len(merges.tokens)), len(heads) * len(tails))
    left, right = (generator.integers(0, len(x), room) for x in (heads, tails))
    for i, j in zip(left.tolist(), right.tolist(), strict=True):
        merges.add(heads[i], tails[j])
