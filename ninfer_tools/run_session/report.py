"""The closing line of an answer, and the record for scripts."""

from __future__ import annotations

import resource
import sys
from typing import TYPE_CHECKING, Any

from ninfer_tools.console import format_bytes
from ninfer_tools.run_session.answering import Answer

if TYPE_CHECKING:
    import torch

    from ninfer_runtime.engine.request import Sampling


def describe(answer: Answer, device: torch.device) -> str:
    """Return the closing line: speeds, acceptance, memory and why the answer ended."""
    parts = [
        f"prefill {answer.prompt_tokens} tokens, {_show_rate(prefill_rate(answer))}",
        f"decode {len(answer.tokens)} tokens, {_show_rate(decode_rate(answer))}",
    ]
    if answer.rounds:
        shares = " ".join(f"{100 * share:.0f}" for share in acceptance(answer))
        parts.append(f"accepted {shares} %")
    parts.append(f"memory {format_bytes(peak_memory(device))}")
    parts.append(f"finish {answer.finish}")
    return " | ".join(parts)


def make_record(answer: Answer, sampling: Sampling, device: torch.device) -> dict[str, Any]:
    return {
        "answer": answer.text,
        "reasoning": answer.reasoning,
        "tokens": answer.tokens,
        "finish": answer.finish,
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": len(answer.tokens),
        "seed": sampling.seed,
        "prefill_seconds": answer.prefill_seconds,
        "prefill_tokens_per_second": prefill_rate(answer),
        "decode_seconds": answer.decode_seconds,
        "decode_tokens_per_second": decode_rate(answer),
        "acceptance": acceptance(answer),
        "device": str(device),
        "memory_bytes": peak_memory(device),
    }


def prefill_rate(answer: Answer) -> float | None:
    """Prompt tokens per second until the first token of the answer."""
    if not answer.prefill_seconds:
        return None
    return answer.prompt_tokens / answer.prefill_seconds


def decode_rate(answer: Answer) -> float | None:
    """Tokens per second after those of the first round."""
    later = len(answer.tokens) - answer.first_tokens
    return later / answer.decode_seconds if later and answer.decode_seconds else None


def acceptance(answer: Answer) -> list[float]:
    """Share of rounds in which each draft position was accepted."""
    return [count / answer.rounds for count in answer.accepted]


def peak_memory(device: torch.device) -> int:
    """Most bytes in use so far: of the device, or of the process on the CPU."""
    if device.type == "cuda":
        import torch

        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _show_rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.1f} tok/s"
