"""What a kernel is compiled with ahead of time, and what the result may cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Compilation:
    """One kernel in one configuration.

    `signature` maps every runtime argument to its Triton type (`*bf16`, `*fp32`, `*i32`, `*u8`,
    `i32`, `fp32`), `constants` every constexpr to its value. `divisible` names the arguments that
    callers guarantee to be multiples of 16 (addresses in bytes): without it the compiler falls
    back to narrow loads. `architectures` are the SM numbers the configuration is used on; `tuned`
    says that it is an entry of the module's TUNED and not a default.
    """

    name: str
    kernel: Any
    signature: Mapping[str, str]
    constants: Mapping[str, Any]
    divisible: tuple[str, ...] = ()
    num_warps: int = 4
    num_stages: int = 2
    max_registers: int = 255
    architectures: tuple[int, ...] = (80, 86, 89, 90, 100, 120)
    options: Mapping[str, Any] = field(default_factory=dict)
    tuned: bool = False
