"""The message object and the events around its content."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

from ninfer_runtime.server.chat_objects import write_closing
from ninfer_runtime.server.events import LENGTH, TOOL_CALLS, Finished


@dataclass(frozen=True)
class MessageObjects:
    """Writes the objects of one message. `prompt` and `cached` count tokens, `context` is the
    most there may be of prompt and answer together, `max_tokens` what the client allows."""

    model: str
    prompt: int
    cached: int
    context: int
    max_tokens: int | None
    id: str = field(default_factory=lambda: f"msg_{secrets.token_hex(12)}")

    def begun(self) -> dict[str, Any]:
        """Return the message before there is any content."""
        usage = {**self._write_input(), "output_tokens": 0}
        return self._write([], None, None, usage)

    def ended(self, content: list[dict[str, Any]], done: Finished) -> dict[str, Any]:
        """Return the whole message."""
        closing = write_closing([done], done.usage)
        return {**self._write(content, *self.stop(done), self._write_usage(done)), **closing}

    def delta(self, done: Finished) -> dict[str, Any]:
        """Return the event with the end of the message and its usage."""
        reason, text = self.stop(done)
        return {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": text},
            "usage": self._write_usage(done),
            **write_closing([done], done.usage),
        }

    def stop(self, done: Finished) -> tuple[str, str | None]:
        """Return the reason of the end, and the stop string that was it."""
        if done.reason == TOOL_CALLS:
            return "tool_use", None
        if done.reason != LENGTH:
            return ("end_turn", None) if done.stop is None else ("stop_sequence", done.stop)
        full = self.prompt + done.usage.completion >= self.context
        wanted_more = self.max_tokens is None or done.usage.completion < self.max_tokens
        return ("model_context_window_exceeded" if full and wanted_more else "max_tokens"), None

    def _write(
        self, content: list[dict[str, Any]], reason: str | None, text: str | None, usage: Any
    ) -> dict[str, Any]:
        return {
            "id": self.id, "type": "message", "role": "assistant", "model": self.model,
            "content": content, "stop_reason": reason, "stop_sequence": text, "usage": usage,
        }  # fmt: skip

    def _write_input(self) -> dict[str, Any]:
        return {
            "input_tokens": self.prompt - self.cached, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": self.cached,
        }  # fmt: skip

    def _write_usage(self, done: Finished) -> dict[str, Any]:
        return {
            **self._write_input(),
            "output_tokens": done.usage.completion,
            "output_tokens_details": {"thinking_tokens": done.usage.reasoning},
        }
