"""Answers to several prompts of one request, as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from starlette.requests import Request

from ninfer_runtime.server.backend import Answer
from ninfer_runtime.server.context import find_record
from ninfer_runtime.server.events import Delta, Finished, Usage
from ninfer_runtime.server.generation import follow, prepare, start, wait_admitted
from ninfer_runtime.server.request_record import RequestRecord
from ninfer_runtime.server.requests import TextRequest
from ninfer_runtime.server.usage import join_usage

_Item = tuple[int, Delta | Finished]


@dataclass(frozen=True)
class Batch:
    """`choices` answers to each of `texts`; answer c to text p has index p * choices + c."""

    answers: Sequence[Answer]
    texts: Sequence[str]
    choices: int

    def prompts(self) -> list[str]:
        """Return the prompt of every index."""
        return [text for text in self.texts for _ in range(self.choices)]

    def join_usage(self, finished: Sequence[Finished]) -> Usage:
        """Return the usage of all; each prompt counts once."""
        n = self.choices
        parts = [join_usage(finished[i : i + n]) for i in range(0, len(finished), n)]
        return Usage(
            prompt=sum(part.prompt for part in parts),
            completion=sum(part.completion for part in parts),
            cached=sum(part.cached for part in parts),
            reasoning=sum(part.reasoning for part in parts),
        )

    async def follow(self, record: RequestRecord) -> AsyncGenerator[_Item]:
        """Give the items of all answers as they come; the first failure is the failure of all."""
        queue: asyncio.Queue[_Item | BaseException | None] = asyncio.Queue()

        async def read(place: int, answer: Answer) -> None:
            try:
                if place > 0:  # the first has been waited for
                    await wait_admitted(answer, record)
                async with aclosing(follow(answer, record)) as items:
                    async for index, item in items:
                        queue.put_nowait((place * self.choices + index, item))
                queue.put_nowait(None)
            except Exception as error:
                queue.put_nowait(error)

        readers = [asyncio.create_task(read(i, a)) for i, a in enumerate(self.answers)]
        try:
            left = len(readers)
            while left:
                item = await queue.get()
                if isinstance(item, BaseException):
                    raise item
                if item is None:
                    left -= 1
                else:
                    yield item
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
            self.cancel()

    def cancel(self) -> None:
        for answer in self.answers:
            answer.cancel()


async def begin_all(request: Request, wanted: Sequence[TextRequest], choices: int) -> Batch:
    """Return the answers when the first has a lane; none is left running if one is refused."""
    prepared = [await prepare(request, each) for each in wanted]
    answers: list[Answer] = []
    try:
        for each, ready in zip(wanted, prepared, strict=True):
            answers.append(start(request, each, ready))
        await wait_admitted(answers[0], find_record(request))
    except BaseException:
        for answer in answers:
            answer.cancel()
        raise
    return Batch(answers, [ready.text for ready in prepared], choices)
