"""Evaluation questions through the engine: requests, replies in all lanes, predicted passages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from ninfer_runtime.config import PAGE_TOKENS
from ninfer_runtime.engine.engine import Engine
from ninfer_runtime.engine.prefill import Place, run_chunk, text_positions
from ninfer_runtime.engine.request import Request
from ninfer_runtime.errors import RequestError
from ninfer_runtime.frontend.frontend import Frontend
from ninfer_runtime.frontend.prompt import run_media
from ninfer_runtime.frontend.template import TemplateOptions
from ninfer_tools.demo.acceptance import Reply
from ninfer_tools.demo.evaluation import Passage, Question

END_TOKENS = ("<|im_end|>", "<|endoftext|>")


@dataclass(frozen=True)
class Task:
    """A prompt to complete. `counted`: the rounds of its reply are compared draft by draft."""

    id: str
    make: Callable[[], Request]
    longest: int
    counted: bool = False


@dataclass(frozen=True)
class Prediction:
    """Summed negative log likelihood of the predicted tokens, and how many were most likely."""

    loss: float
    tokens: int
    top: int


class Answerer:
    """An engine and the frontend of its artifact."""

    def __init__(self, engine: Engine, frontend: Frontend) -> None:
        self.engine, self.frontend = engine, frontend
        self.ends = tuple(frontend.tokenizer.require(token) for token in END_TOKENS)

    def decode(self, reply: Reply) -> str:
        return self.frontend.tokenizer.decode(reply.tokens, skip_special=False)

    def ask(self, question: Question, longest: int, counted: bool) -> Task:
        return Task(
            question.id, lambda: self._make_request(question, longest, counted), longest, counted
        )

    def complete(self, id: str, prompt: tuple[int, ...], longest: int) -> Task:
        """A task whose prompt is plain text; its rounds are counted."""
        return Task(id, lambda: Request(prompt, self._room(longest, True)), longest, True)

    def run(self, tasks: list[Task]) -> Iterator[tuple[str, Reply]]:
        """Yield every task's id with its reply, keeping all lanes busy."""
        waiting, live = list(reversed(tasks)), dict[int, tuple[str, Reply]]()
        while waiting or self.engine.busy:
            while waiting and len(live) < 2 * self.engine.settings.lanes:
                task = waiting.pop()
                reply = Reply(task.longest, self.ends)
                live[self.engine.add(task.make())] = (task.id, reply)
            for step in self.engine.step():
                if step.number not in live:
                    continue
                id, reply = live[step.number]
                if step.error is not None:
                    raise RequestError(f"{id}: {step.error}")
                if reply.extend(step.tokens) or step.finish is not None:
                    self.engine.cancel(step.number)
                    yield live.pop(step.number)

    def predict(self, passage: Passage) -> Prediction:
        """Predict every token of a passage but the first. The engine must not be busy."""
        engine = self.engine
        ids = tuple(self.frontend.tokenizer.encode(passage.text))
        device = engine.settings.device
        engine.state.decoder.recurrent.reset(0)
        pages = torch.arange(-(-len(ids) // PAGE_TOKENS), dtype=torch.int32, device=device)
        hidden = run_chunk(
            engine.model, engine.state, Request(ids, 1), text_positions(len(ids)),
            Place(0, pages[None]), 0, len(ids) - 1,
        )  # fmt: skip
        logits = engine.model.score(hidden)
        wanted = torch.tensor(ids[1:], device=device)
        losses = torch.nn.functional.cross_entropy(logits, wanted, reduction="none").double()
        top = int((logits.argmax(-1) == wanted).sum())
        return Prediction(float(losses.sum()), len(ids) - 1, top)

    def _make_request(self, question: Question, longest: int, counted: bool) -> Request:
        options = TemplateOptions(enable_thinking=question.think)
        reader, files = self.frontend.media, list(question.media)
        media = []
        if files and reader is not None:
            parts = question.messages[0]["content"]
            video = any(part["type"] == "video" for part in parts)
            media = (
                [reader.read_pictures(files, question.id)]
                if video
                else [reader.read_image(file, question.id) for file in files]
            )
        chat = self.frontend.chat(question.messages, media, tools=question.tools, options=options)
        tower = self.engine.model.vision
        rows = None if tower is None else run_media(chat.prompt, tower)
        stops = () if counted else self.ends
        return Request(chat.prompt.ids, self._room(longest, counted), stops=stops, media=rows)

    def _room(self, longest: int, counted: bool) -> int:
        """Leave rounds that are counted whole: the engine would cut them at the end."""
        return longest + (self.engine.settings.width if counted else 0)
