"""Answers with tool calls, as a scripted service gives them."""

from __future__ import annotations

from builders.fake_service import end
from ninfer_runtime.server.events import TOOL_CALLS, CallDelta, Delta

ONE_CALL = [
    (0, Delta(reasoning="hm")), (0, Delta(content="see")),
    (0, Delta(calls=(CallDelta(0, "call_1", "f", '{"a":'),))),
    (0, Delta(calls=(CallDelta(0, arguments="1}"),))),
    (0, end(TOOL_CALLS)),
]  # fmt: skip
TWO_CALLS = [
    (0, Delta(reasoning="Let me ")),
    (0, Delta(reasoning="see.")),
    (0, Delta(content="I'll look.")),
    (0, Delta(calls=(CallDelta(0, "call_1", "f"),))),
    (0, Delta(calls=(CallDelta(0, arguments='{"a":'),))),
    (0, Delta(calls=(CallDelta(0, arguments="1}"), CallDelta(1, "call_2", "g", "{}")))),
    (0, end(TOOL_CALLS)),
]
