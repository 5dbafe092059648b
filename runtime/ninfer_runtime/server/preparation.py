"""From a request in the words of no dialect to token ids and everything the engine is told."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ninfer_formats.errors import NinferError
from ninfer_kernels.sampling.parameters import CANDIDATES
from ninfer_runtime.errors import RequestError
from ninfer_runtime.frontend.frontend import ChatPrompt, Frontend
from ninfer_runtime.frontend.media import Medium
from ninfer_runtime.frontend.messages import list_media
from ninfer_runtime.frontend.prompt import Prompt, extend_prompt
from ninfer_runtime.frontend.stop_strings import MAX_STOPS
from ninfer_runtime.frontend.template import TemplateOptions
from ninfer_runtime.frontend.tool_calls.forcing import ToolChoice, offer_tools
from ninfer_runtime.frontend.tool_calls.tool_set import ToolSet, read_tools
from ninfer_runtime.server.answer_grammar import choose_constraint
from ninfer_runtime.server.api_error import ApiError, invalid
from ninfer_runtime.server.card import ModelCard
from ninfer_runtime.server.engine_process.grammar import Grammars
from ninfer_runtime.server.engine_process.messages import MediumPlace, PromptMedia, WatchedAnswer
from ninfer_runtime.server.media_shelf import MediaShelf, ShelvedMedium
from ninfer_runtime.server.prepared import Prepared
from ninfer_runtime.server.prompt_boundaries import find_boundaries
from ninfer_runtime.server.requests import (
    AnswerFields,
    ChatRequest,
    Constraint,
    TextRequest,
    ThinkingFields,
)
from ninfer_runtime.server.sampling_defaults import SamplingDefaults
from ninfer_runtime.server.service_options import ServiceOptions
from ninfer_runtime.server.thinking_limit import SHORT_CLOSE_TEXT, ThinkingLimit, limit_thinking

# Without a default of the server's, an answer may be at least so long where the context allows it.
_LEAST_DEFAULT = 8192
_GRAMMAR_SECONDS = 3.0  # of a processor
_CONSTRAINT_FIELDS = {
    "json_object": "response_format", "json_schema": "response_format", "regex": "guided_regex",
    "lark": "guided_grammar", "gbnf": "grammar",
}  # fmt: skip


@dataclass(frozen=True)
class RequestTemplateOptions(TemplateOptions):
    """Switches of the family's templates, and whatever else a template reads."""

    more: Mapping[str, Any] = field(default_factory=dict)

    def stated(self) -> dict[str, Any]:
        own = {name: value for name, value in super().stated().items() if name != "more"}
        return {**self.more, **own}


class Preparation:
    """Prepares requests; takes milliseconds to seconds, in any thread. Every refusal is an
    ApiError 400 that names the field."""

    def __init__(
        self,
        frontend: Frontend,
        grammars: Grammars | None,
        defaults: SamplingDefaults,
        card: ModelCard,
        options: ServiceOptions,
    ) -> None:
        self._frontend, self._grammars, self._defaults = frontend, grammars, defaults
        self._card, self._options = card, options
        self._shelf = None
        if frontend.media is not None and card.vision:
            self._shelf = MediaShelf(frontend.media, options.media_bytes)
        encode = frontend.tokenizer.encode
        self._closes = tuple(encode(text) for text in (options.close_text, SHORT_CLOSE_TEXT))

    def prepare_chat(self, request: ChatRequest) -> Prepared:
        began = time.monotonic()
        thinking = self._choose_thinking(request.thinking)
        try:
            choice = ToolChoice(request.tool_choice.mode, request.tool_choice.names)
            tools = offer_tools(read_tools(request.tools), choice)
            shelved = self._read_media(request.messages)
            chat = self._frontend.chat(
                request.messages, [one.medium for one in shelved], tools=tools.definitions or None,
                options=self._template_options(request, thinking),
            )  # fmt: skip
            constraint = choose_constraint(
                request.answer.constraint, tools, choice, request.parallel_calls
            )
        except NinferError as error:
            raise _refuse(error) from None
        prompt = self._begin_answer(chat, request.prefill)
        media = _place_media(self._frontend, prompt, shelved)
        thinking = ThinkingFields(chat.thinking, thinking.effort, thinking.budget)
        return self._finish(
            replace(request.answer, constraint=constraint), prompt, thinking, began,
            tools=tools, parallel_calls=request.parallel_calls, media=media,
            counted=request.counted,
        )  # fmt: skip

    def _begin_answer(self, chat: ChatPrompt, text: str) -> Prompt:
        """Return the prompt with the begin of the answer behind it, in which no text is a control
        token."""
        if not text:
            return chat.prompt
        if chat.thinking:
            message = (
                "the model's template thinks in any case, which the begin of an answer forbids"
            )
            raise invalid(message, "messages", "assistant_prefill_not_supported")
        return extend_prompt(chat.prompt, self._frontend.tokenizer.encode_literal(text))

    def prepare_text(self, request: TextRequest) -> Prepared:
        began = time.monotonic()
        if isinstance(request.prompt, str):
            ids = tuple(self._frontend.tokenizer.encode(request.prompt))
        else:
            ids = tuple(request.prompt)
            beyond = next((id for id in ids if not 0 <= id < self._card.vocabulary), None)
            if beyond is not None:
                message = f"prompt: no token has id {beyond}, there are {self._card.vocabulary}"
                raise invalid(message, "prompt", "invalid_value")
        if not ids:
            raise invalid("prompt is empty", "prompt", "invalid_prompt")
        return self._finish(request.answer, Prompt(ids), None, began)

    def _finish(
        self,
        answer: AnswerFields,
        prompt: Prompt,
        thinking: ThinkingFields | None,
        began: float,
        *,
        tools: ToolSet | None = None,
        parallel_calls: bool = True,
        media: PromptMedia | None = None,
        counted: bool = False,
    ) -> Prepared:
        tokenizer = self._frontend.tokenizer
        room = 1 if counted else self._measure_room(len(prompt.ids))
        max_tokens = min(self._choose_max_tokens(answer.max_tokens, len(prompt.ids)), room)
        limit = self._limit(thinking, max_tokens)
        _check_stops(answer.stop)
        _check_logprobs(answer.logprobs)
        if answer.constraint is not None:
            self._check_constraint(answer.constraint)
        watch = WatchedAnswer(
            None if thinking is None else bool(thinking.enabled), limit.tokens, limit.close,
            answer.stop, answer.constraint,
        )  # fmt: skip
        done = ThinkingFields(False) if thinking is None else thinking
        # A grammar ends an answer through its stop ids.
        keeps_stops = not answer.ignore_eos or answer.constraint is not None
        return Prepared(
            ids=prompt.ids,
            thinking=ThinkingFields(done.enabled, done.effort, limit.tokens),
            max_tokens=max_tokens,
            asked_tokens=answer.max_tokens,
            sampling=self._defaults.choose(answer.sampling),
            stops=tokenizer.stops if keeps_stops else (),
            watch=watch,
            logprobs=answer.logprobs,
            choices=self._check_choices(answer.choices),
            boundaries=find_boundaries(tokenizer, prompt.ids),
            tools=tools,
            parallel_calls=parallel_calls,
            began=began,
            tokenizer=tokenizer,
            media=media,
            pictures=prompt.media,
        )

    def _choose_thinking(self, asked: ThinkingFields) -> ThinkingFields:
        """Return what the request says, then what the server does, of each of the three."""
        default = self._options.thinking
        budget = default.budget if asked.budget is None else asked.budget
        enabled = asked.enabled
        if enabled is None and (asked.effort is None and asked.budget is None):
            enabled = default.enabled
        if budget is not None and budget < 0:
            raise invalid(f"thinking_budget is {budget}, want at least 0", "thinking_budget")
        if asked.effort == "none" or budget == 0:
            enabled = False
        effort = default.effort if asked.effort is None else asked.effort
        return ThinkingFields(enabled, None if enabled is False else effort, budget)

    def _template_options(
        self, request: ChatRequest, thinking: ThinkingFields
    ) -> RequestTemplateOptions:
        more = {**self._options.template, **request.template}
        return RequestTemplateOptions(
            enable_thinking=thinking.enabled, reasoning_effort=thinking.effort, more=more
        )

    def _read_media(self, messages: Sequence[Mapping[str, Any]]) -> list[ShelvedMedium]:
        parts = list_media(messages)
        if not parts:
            return []
        if self._shelf is None:
            where = parts[0].where
            message = f"{where}: images and videos need a server started with --vision"
            raise invalid(message, where, "vision_disabled")
        try:
            return [self._shelf.read(part) for part in parts]
        except RequestError as error:
            raise invalid(str(error), error.where, "invalid_media") from None

    def _measure_room(self, tokens: int) -> int:
        """Return how many tokens the answer may have; ApiError 400 when there is room for none."""
        context = self._card.max_context
        if tokens >= context:
            message = (
                f"the prompt has {tokens} tokens, and the context of this server is {context} "
                f"tokens (--max-context), of which the answer needs one"
            )
            raise invalid(message, "messages", "context_length_exceeded")
        return context - tokens

    def _choose_max_tokens(self, asked: int | None, prompt: int) -> int:
        if asked is not None:
            if asked < 1:
                raise invalid(f"max_tokens is {asked}, want at least 1", "max_tokens")
            return asked
        if self._options.default_max_tokens is not None:
            return self._options.default_max_tokens
        engine = self._card.engine
        return max(engine.kv_tokens // engine.lanes - prompt, _LEAST_DEFAULT)

    def _limit(self, thinking: ThinkingFields | None, max_tokens: int) -> ThinkingLimit:
        if thinking is None or not thinking.enabled:
            return ThinkingLimit()
        reserve = self._options.answer_reserve
        return limit_thinking(max_tokens, thinking.budget, reserve, self._closes)

    def _check_constraint(self, constraint: Constraint) -> None:
        """Compile a constraint, which the engine process does again for itself."""
        param = constraint.param or _CONSTRAINT_FIELDS.get(constraint.kind)
        if self._grammars is None:
            message = "structured output needs llguidance: pip install 'ninfer[serve]'"
            raise invalid(message, param, "response_format_not_supported")
        began = time.thread_time()
        try:
            self._grammars.compile(constraint)
        except RequestError as error:
            raise invalid(str(error), param, "invalid_grammar") from None
        # The engine process compiles it too, and whoever came later waits for that.
        if time.thread_time() - began > _GRAMMAR_SECONDS:
            message = f"the grammar takes more than {_GRAMMAR_SECONDS:g} s to compile"
            raise invalid(message, param, "invalid_grammar")

    def _check_choices(self, choices: int) -> int:
        lanes = self._card.lanes
        if not 1 <= choices <= lanes:
            message = f"n is {choices}, this server has {lanes} lanes (--max-concurrency)"
            raise invalid(message, "n", "n_not_supported")
        return choices


def _place_media(
    frontend: Frontend, prompt: Prompt, shelved: Sequence[ShelvedMedium]
) -> PromptMedia | None:
    """Return where the media of a prompt lie, in the order of their places."""
    if prompt.places is None or prompt.positions is None or frontend.media is None:
        return None
    merge = frontend.media.image_settings.merge**2
    digests = {id(one.medium): one.digest for one in shelved}
    items, begin = [], 0
    for medium in prompt.media:
        end = begin + medium.grid.patches // merge
        first, last = int(prompt.places[begin]), int(prompt.places[end - 1])
        items.append(MediumPlace(digests[id(medium)], medium.grid, first, last + 1))
        begin = end
    return PromptMedia(tuple(items), prompt.places.numpy(), prompt.positions.numpy())


def patches_of(medium: Medium) -> Any:
    """Return the patches of a medium fp32 [n, values] as another process gets them."""
    return medium.patches.contiguous().numpy()


def _check_stops(stops: Sequence[str]) -> None:
    if len(stops) > MAX_STOPS:
        message = f"stop has {len(stops)} strings, want at most {MAX_STOPS}"
        raise invalid(message, "stop", "invalid_value")
    if not all(stops):
        raise invalid("stop has an empty string", "stop", "invalid_value")


def _check_logprobs(wanted: int | None) -> None:
    if wanted is not None and not 0 <= wanted <= CANDIDATES:
        message = f"top_logprobs is {wanted}, want 0 to {CANDIDATES}"
        raise invalid(message, "top_logprobs", "invalid_value")


def _refuse(error: NinferError) -> ApiError:
    """Return the refusal; an error that names no field of a request is about its messages."""
    where = error.where or ""
    field = where.partition("[")[0].partition(".")[0]
    if field in ("tools", "tool_choice"):
        return invalid(str(error), where, "invalid_value")
    return invalid(str(error), where if field == "messages" else "messages", "invalid_prompt")
