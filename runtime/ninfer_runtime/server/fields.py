"""Fields that are accepted without effect, and why; specs/http.md has the same lists.

Every other accepted field has an effect and stands in a model of `bodies`; what is in neither is
refused with its name.
"""

from __future__ import annotations

from collections.abc import Mapping

_OPENAI_HINTS = {
    "user": "names an end user for abuse reports",
    "safety_identifier": "names an end user for abuse reports",
    "metadata": "is kept for the client's own lists, of which there are none",
    "store": "asks to keep the answer for the client's own lists, of which there are none",
    "service_tier": "chooses between queues of which there is one",
    "prompt_cache_key": "helps to find a cached prefix, which is found by its tokens",
    "prompt_cache_retention": "bounds a cached prefix, which stays while there is room",
    "prompt_cache_options": "bounds a cached prefix, which stays while there is room",
    "cache_prompt": "asks for what is always done",
}

_CACHE_MARK = "marks a prefix to cache, which is found by its tokens"
_LOADING = "is for servers that search tools; here all of them are offered"
_CALLERS = "is for servers that run programs of their own"

_ANTHROPIC_HINTS = {
    "metadata": "names an end user for abuse reports",
    "service_tier": "chooses between queues of which there is one",
    "speed": "chooses between queues of which there is one",
    "inference_geo": "chooses between places of which there is one",
    "cache_control": _CACHE_MARK,
    "context_management": "edits the conversation, which is the client's own",
    "diagnostics": "asks for another server's reports",
    "user_profile_id": "is another server's",
    "workspace_id": "is another server's",
}

NO_OPS: Mapping[str, Mapping[str, str]] = {
    "chat": {
        **_OPENAI_HINTS,
        "prediction": "guesses the answer to save time; speculation has its own guesses",
    },
    "completions": dict(_OPENAI_HINTS),
    "message": {
        "id": "is the client's own",
        "name": "is not read by the model's templates",
        "refusal": "is what other models say instead of content",
        "annotations": "are sources that other servers found",
        "audio": "refers to sound that other servers made",
        "cache_control": "marks a prefix to cache, which is found by its tokens",
        "reasoning_details": "repeats the reasoning in another server's form",
        "provider_specific_fields": "are another server's",
    },
    "part": {
        "cache_control": "marks a prefix to cache, which is found by its tokens",
        "annotations": "are sources that other servers found",
        "prompt_cache_breakpoint": "marks a prefix to cache, which is found by its tokens",
    },
    "tool": {"cache_control": "marks a prefix to cache, which is found by its tokens"},
    "responses": {
        **{
            name: reason for name, reason in _OPENAI_HINTS.items()
            if name not in ("metadata", "store")
        },
        "max_tool_calls": "bounds calls of tools that the server would run",
        "client_metadata": "is kept for the client's own lists, of which there are none",
    },
    "item": {
        "phase": "is what other models say of their messages",
        "caller": _CALLERS,
        "async": _CALLERS,
        "created_by": "is the client's own",
        "parsed_arguments": "repeats the arguments",
    },
    "input_part": {
        "annotations": "are sources that other servers found",
        "logprobs": "are what a server said of the text",
        "prompt_cache_breakpoint": _CACHE_MARK,
        "cache_control": _CACHE_MARK,
        "parsed": "repeats the text",
    },
    "response_tool": {
        "cache_control": _CACHE_MARK,
        "defer_loading": _LOADING,
        "allowed_callers": _CALLERS,
        "output_schema": "describes results, which come with the next request",
    },
    "reasoning": {
        "context": "chooses which reasoning a server drops; the model's template decides",
        "mode": "chooses between ways of other models",
    },
    "text": {"verbosity": "is a word to other models; say it in the instructions"},
    "anthropic": _ANTHROPIC_HINTS,
    "block": {
        "cache_control": _CACHE_MARK,
        "citations": "are sources that other servers found",
        "caller": _CALLERS,
        "toolset_name": "groups tools of other servers",
        "parsed_output": "repeats the text",
    },
    "anthropic_tool": {
        "cache_control": _CACHE_MARK,
        "defer_loading": _LOADING,
        "allowed_callers": _CALLERS,
        "input_examples": "are not in the form that the model knows",
        "eager_input_streaming": "asks for what is always done",
    },
}  # fmt: skip
