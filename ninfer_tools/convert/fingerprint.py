"""A quick identity of a checkpoint's content (rule V-42)."""

from __future__ import annotations

import hashlib

from ninfer_tools.convert.sources.checkpoint import CONFIG, Checkpoint
from ninfer_tools.convert.sources.safetensors_file import PREFIX_BYTES

_SAMPLES, _SAMPLE_BYTES = 64, 4096


def read_fingerprint(checkpoint: Checkpoint, weights: bool) -> str:
    """Return a SHA-256 (hexadecimal) over config.json and, of every weight file, its name, size,
    header and, with `weights`, 64 evenly spaced samples of 4096 bytes.

    It tells checkpoints apart; it proves nothing about bytes outside the samples.
    """
    digest, files = hashlib.sha256(), checkpoint.files
    digest.update(files.read(CONFIG, 0, files.size(CONFIG)))
    for name in checkpoint.weight_files:
        size = files.size(name)
        digest.update(f"\0{name}\0{size}\0".encode())
        head = int.from_bytes(files.read(name, 0, PREFIX_BYTES), "little") + PREFIX_BYTES
        digest.update(files.read(name, 0, head))
        for i in range(_SAMPLES if weights else 0):
            begin = head + (size - head) * i // _SAMPLES
            digest.update(files.read(name, begin, min(size, begin + _SAMPLE_BYTES)))
    return digest.hexdigest()
