"""The tokenizer of a checkpoint, for texts that a conversion counts or runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ninfer_formats.errors import NinferError, UsageError

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def load_tokenizer(content: bytes, user: str, extra: str) -> Tokenizer:
    """Return the tokenizer of a tokenizer.json, without truncation and padding.

    Raises UsageError without the tokenizers library, saying that `user` needs it and that the
    package's `extra` brings it; NinferError for a file that it cannot use.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError:
        remedy = f"pip install 'ninfer[{extra}]'"
        raise UsageError(f"{user} needs tokenizers", remedy=remedy) from None
    try:
        tokenizer = Tokenizer.from_buffer(content)
        tokenizer.no_truncation()
        tokenizer.no_padding()
    except Exception as error:  # the library raises nothing narrower
        raise NinferError("tokenizer.json cannot be used", got=error) from None
    return tokenizer
