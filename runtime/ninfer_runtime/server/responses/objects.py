"""The response object, from its begin to its end."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.chat_objects import write_closing
from ninfer_runtime.server.events import LENGTH, Finished, Usage
from ninfer_runtime.server.responses.body import ResponseBody
from ninfer_runtime.server.responses.output_items import COMPLETED, IN_PROGRESS, INCOMPLETE
from ninfer_runtime.server.responses.tools import plain_response_tools

FAILED = "failed"


@dataclass(frozen=True)
class ResponseObjects:
    """Writes the objects of one response; all share its id and time."""

    model: str
    body: ResponseBody
    id: str = field(default_factory=lambda: f"resp_{secrets.token_hex(16)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def begun(self) -> dict[str, Any]:
        """Return the response before there is any output."""
        return self._write(IN_PROGRESS, [])

    def ended(self, output: list[dict[str, Any]], done: Finished) -> dict[str, Any]:
        """Return the response with its usage, whole or cut."""
        status = INCOMPLETE if done.reason == LENGTH else COMPLETED
        reason = {"reason": "max_output_tokens"} if status == INCOMPLETE else None
        return {
            **self._write(status, output),
            "completed_at": int(time.time()),
            "incomplete_details": reason,
            "usage": write_response_usage(done.usage),
            **write_closing([done], done.usage),
        }

    def failed(self, output: list[dict[str, Any]], error: ApiError) -> dict[str, Any]:
        """Return the response that could not be finished."""
        fault = {"code": "server_error", "message": error.message}
        return {**self._write(FAILED, output), "error": fault}

    def _write(self, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        body, given = self.body, self.body.given
        reasoning = body.reasoning
        summary = reasoning and (reasoning.summary or reasoning.generate_summary)
        text = given.get("text") or {}
        return {
            "id": self.id, "object": "response", "created_at": self.created, "status": status,
            "completed_at": None, "error": None, "incomplete_details": None,
            "background": False, "instructions": body.instructions, "model": self.model,
            "output": output, "previous_response_id": body.previous_response_id,
            "max_output_tokens": body.max_output_tokens, "temperature": body.temperature,
            "top_p": body.top_p, "top_logprobs": body.top_logprobs or 0,
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "reasoning": {"effort": reasoning and reasoning.effort, "summary": summary},
            "text": {"format": text.get("format") or {"type": "text"}},
            "tool_choice": given.get("tool_choice") or "auto",
            "tools": plain_response_tools(given.get("tools")), "truncation": "disabled",
            "store": body.store is not False, "metadata": body.metadata or {}, "usage": None,
        }  # fmt: skip


def write_response_usage(usage: Usage) -> dict[str, Any]:
    """Return the usage object of the Responses API."""
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.total,
    }
