"""Everything between messages and token ids that an artifact carries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ninfer_formats.inventories.geometry import ModelGeometry
from ninfer_formats.reader import Artifact
from ninfer_runtime.frontend.control_tokens import ControlTokens
from ninfer_runtime.frontend.media import MediaReader, Medium, load_media_reader
from ninfer_runtime.frontend.messages import prepare_messages
from ninfer_runtime.frontend.output_parser import THINK_START
from ninfer_runtime.frontend.prompt import Prompt, build_prompt
from ninfer_runtime.frontend.template import ChatTemplate, TemplateOptions, load_template
from ninfer_runtime.frontend.tokenizer import Tokenizer, load_tokenizer


@dataclass(frozen=True)
class ChatPrompt:
    """A prompt, and whether the answer begins inside a think block."""

    prompt: Prompt
    thinking: bool


@dataclass(frozen=True)
class Frontend:
    """`media` is None without a vision tower."""

    tokenizer: Tokenizer
    template: ChatTemplate
    control: ControlTokens
    media: MediaReader | None

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        media: Sequence[Medium] = (),
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: TemplateOptions | None = None,
    ) -> ChatPrompt:
        """Return the prompt for the next answer; `media` are the parts of `list_media`, read."""
        marked, tools = self.control.mark(prepare_messages(messages), tools)
        text = self.template.render(marked, tools=tools, options=options)
        merge = self.media.image_settings.merge if self.media is not None else 1
        prompt = build_prompt(self.tokenizer, self.control.split(text), media, merge)
        return ChatPrompt(prompt, text.rstrip().endswith(THINK_START))


def load_frontend(artifact: Artifact, geometry: ModelGeometry) -> Frontend:
    """Return an artifact's frontend; StartupError for files that are absent or broken."""
    tokenizer = load_tokenizer(artifact)
    special = [text for text, id in tokenizer.added.items() if id in tokenizer.special]
    reader = None if geometry.vision is None else load_media_reader(artifact, geometry.vision)
    control = ControlTokens(list(tokenizer.added), special)
    return Frontend(tokenizer, load_template(artifact), control, reader)
