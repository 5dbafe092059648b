"""The closing line of an answer, and the record for scripts."""

from __future__ import annotations

import math
import resource
import sys
from typing import TYPE_CHECKING, Any

from ninfer_tools.console import format_bytes
from ninfer_tools.run_session.answering import Answer

if TYPE_CHECKING:
    import torch

    from ninfer_runtime.engine.request import TokenScore
    from ninfer_runtime.frontend.tokenizer import Tokenizer
    from ninfer_tools.run_session.answer_settings import AnswerSettings


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


def make_record(
    answer: Answer, settings: AnswerSettings, device: torch.device, tokenizer: Tokenizer | None
) -> dict[str, Any]:
    """Return what `--json` prints; `logprobs` is there when it was asked for."""
    record = {
        "answer": answer.text,
        "reasoning": answer.reasoning,
        "tokens": answer.tokens,
        "finish": answer.finish,
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": len(answer.tokens),
        "stop": answer.stop,
        "seed": settings.sampling.seed,
        "prefill_seconds": answer.prefill_seconds,
        "prefill_tokens_per_second": prefill_rate(answer),
        "decode_seconds": answer.decode_seconds,
        "decode_tokens_per_second": decode_rate(answer),
        "acceptance": acceptance(answer),
        "device": str(device),
        "memory_bytes": peak_memory(device),
    }
    if settings.top_logprobs is not None:
        record["logprobs"] = [
            _describe_score(id, score, tokenizer)
            for id, score in zip(answer.tokens, answer.scores, strict=True)
        ]
    return record


def _describe_score(id: int, score: TokenScore, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Return a token, its log probability, and the most likely tokens with theirs."""
    top = [_describe_token(other, value, tokenizer) for other, value in score.top]
    return {**_describe_token(id, score.logprob, tokenizer), "top": top}


def _describe_token(id: int, logprob: float, tokenizer: Tokenizer | None) -> dict[str, Any]:
    text = {} if tokenizer is None else {"text": tokenizer.decode([id])}
    # -inf, of a token that was forbidden, is not JSON.
    return {"id": id, **text, "logprob": logprob if math.isfinite(logprob) else None}


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
