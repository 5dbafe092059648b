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
}
