"""What loading took."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LoadRecord:
    """Seconds of a load, which add up to its wall time: `open` checks and plans, `read` waits for
    bytes of the file, `upload` waits for the device, `prepare` decodes, re-quantises and places.
    What overlaps counts where the loading thread waited. `bytes` are stored bytes read."""

    bytes: int
    open: float
    read: float
    upload: float
    prepare: float

    @property
    def seconds(self) -> float:
        return self.open + self.read + self.upload + self.prepare

    @property
    def gigabytes_per_second(self) -> float:
        return self.bytes / max(self.seconds, 1e-9) / 1e9

    def __str__(self) -> str:
        return (
            f"open {self.open:.2f} s, read {self.read:.2f} s, upload {self.upload:.2f} s, "
            f"prepare {self.prepare:.2f} s: {self.bytes / 1e9:.2f} GB, "
            f"{self.gigabytes_per_second:.2f} GB/s"
        )
