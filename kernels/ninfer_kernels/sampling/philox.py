"""Counter-based random numbers: Philox4x32-10 in torch's int64 arithmetic.

Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011). A number is a
function of (seed, position, purpose, token) alone: nothing is carried from call to call.
"""

from __future__ import annotations

import torch

ROUNDS = 10
_MULTIPLIER_A, _MULTIPLIER_B = 0xD2511F53, 0xCD9E8D57
_WEYL_A, _WEYL_B = 0x9E3779B9, 0xBB67AE85
_MASK = 0xFFFFFFFF


def _multiply(constant: int, word: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    # The product wraps in int64; its 64 bits are right and the mask removes the sign.
    product = word * constant
    return (product >> 32) & _MASK, product & _MASK


def philox(
    seed: torch.Tensor, counter: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return four words, int64 tensors below 2^32, of int64 `seed` and counter words.

    The low half of the seed is the first key word.
    """
    c0, c1, c2, c3 = (word & _MASK for word in counter)
    k0, k1 = seed & _MASK, (seed >> 32) & _MASK
    for _ in range(ROUNDS):
        high_a, low_a = _multiply(_MULTIPLIER_A, c0)
        high_b, low_b = _multiply(_MULTIPLIER_B, c2)
        c0, c1, c2, c3 = high_b ^ c1 ^ k0, low_b, high_a ^ c3 ^ k1, low_a
        k0, k1 = (k0 + _WEYL_A) & _MASK, (k1 + _WEYL_B) & _MASK
    return c0, c1, c2, c3


# Below it -log(1 - v) is a series: 1 - v rounds, and a GPU's fast logarithm is only absolutely
# precise near 1, exactly where the winners of a race are.
SERIES_LIMIT = 1 / 16
SERIES_TERMS = 8


def _exponential(word: torch.Tensor) -> torch.Tensor:
    v = ((word.float() + 0.5) * 2.0**-32).clamp(max=1 - 2.0**-24)
    series = torch.full_like(v, 1 / SERIES_TERMS)
    for power in range(SERIES_TERMS - 1, 0, -1):
        series = series * v + 1 / power
    return torch.where(v < SERIES_LIMIT, series * v, -torch.log(1 - v))


def exponential_noise(
    seed: torch.Tensor, position: torch.Tensor, purpose: int | torch.Tensor, ids: torch.Tensor
) -> torch.Tensor:
    """Return exponentially distributed numbers, fp32, one per token id.

    seed int64, position int32 and purpose broadcast against ids (any integer dtype). Token t
    uses word t mod 4 of counter (t div 4, position, purpose, 0). With v = (word + 1/2) / 2^32,
    at most 1 - 2^-24, the number is -log(1 - v).
    """
    wide = ids.long()
    zero = torch.zeros_like(wide)
    counter = (wide >> 2, position.long() + zero, zero + purpose, zero)
    words = torch.stack(philox(seed.long() + zero, counter))
    return _exponential(words.gather(0, (wide & 3)[None]).squeeze(0))


def vocabulary_noise(
    seed: torch.Tensor, position: torch.Tensor, purpose: int | torch.Tensor, vocabulary: int
) -> torch.Tensor:
    """Return `exponential_noise` of every token, fp32 [R, V]; seed, position, purpose [R, 1]."""
    quarter = torch.arange(-(-vocabulary // 4), device=seed.device)
    zero = torch.zeros_like(quarter + seed)
    counter = (quarter + zero, position.long() + zero, zero + purpose, zero)
    words = torch.stack(philox(seed + zero, counter), dim=-1)
    return _exponential(words.flatten(1)[:, :vocabulary])


def uniform_noise(seed: torch.Tensor, position: torch.Tensor, purpose: int) -> torch.Tensor:
    """Return uniform numbers in [0, 1), fp32: the upper 24 bits of the first word."""
    wide = position.long()
    zero = torch.zeros_like(wide)
    word = philox(seed.long() + zero, (zero, wide, zero + purpose, zero))[0]
    return (word >> 8).float() * 2.0**-24
