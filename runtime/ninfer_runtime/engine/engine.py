"""The engine: requests in, tokens out, one round after the other."""

from __future__ import annotations

from collections import deque

import torch

from ninfer_formats.reader import Artifact
from ninfer_runtime.config import PAGE_TOKENS, EngineConfig, Settings, resolve
from ninfer_runtime.engine.devices import prepare_device
from ninfer_runtime.engine.graphs import Rounds
from ninfer_runtime.engine.landing import Landing, land
from ninfer_runtime.engine.lane_writer import activate, idle
from ninfer_runtime.engine.lanes import MAX_BIAS, MAX_STOP_IDS, allocate_lanes
from ninfer_runtime.engine.prefill import Place, run_chunk, text_positions
from ninfer_runtime.engine.request import (
    CANCELLED,
    ERROR,
    LENGTH,
    STOP,
    Request,
    Step,
)
from ninfer_runtime.engine.round import RoundKind
from ninfer_runtime.engine.scores import read_scores
from ninfer_runtime.engine.sequence import Phase, Sequence
from ninfer_runtime.errors import RequestError
from ninfer_runtime.models.qwen3_5.model import allocate_state, load_model, read_geometry
from ninfer_runtime.state.kv_pages import PagePool


class Engine:
    """One model on one device. Not thread-safe: one thread owns it."""

    def __init__(self, artifact: Artifact, config: EngineConfig) -> None:
        self.geometry = read_geometry(artifact)
        self.settings: Settings = resolve(
            config, self.geometry, "proposal/head" in artifact.bindings
        )
        prepare_device(self.settings.device)
        self.model = load_model(artifact, self.geometry, self.settings)
        self.state = allocate_state(self.geometry, self.settings, self.settings.lanes)
        self.table = allocate_lanes(self.settings, self.geometry.text.vocab_size)
        self.pages = PagePool(self.settings.pages)
        self._free_lanes = list(range(self.settings.lanes - 1, -1, -1))
        self._sequences: dict[int, Sequence] = {}
        self._waiting: deque[Sequence] = deque()
        self._next = 0
        self._rounds = Rounds(self.model, self.state, self.table, self.settings.cuda_graph)
        self._landings: deque[Landing] = deque()
        # On a GPU the host reads a round while the next one runs.
        self._look_ahead = 1 if self.settings.device.type == "cuda" else 0

    @property
    def busy(self) -> bool:
        """Whether any request is not finished."""
        return bool(self._sequences)

    def add(self, request: Request) -> int:
        """Take a request; return its number. RequestError when it can never run."""
        max_tokens = self._check(request)
        sequence = Sequence(self._next, request, max_tokens)
        self._next += 1
        self._sequences[sequence.number] = sequence
        self._waiting.append(sequence)
        return sequence.number

    def cancel(self, number: int) -> Step | None:
        """End a request now; None when it is already over."""
        sequence = self._sequences.get(number)
        if sequence is None:
            return None
        self._release(sequence)
        return Step(number, (), 0, CANCELLED)

    def step(self) -> list[Step]:
        """Do one piece of work: admit, at most one prefill chunk, at most one round."""
        self._admit()
        self._prefill()
        running = tuple(s for s in self._sequences.values() if s.phase is Phase.RUNNING)
        if not running:
            return self._read(ahead=0)
        kind = RoundKind(
            wide=any(s.request.sampling.wide for s in running),
            penalised=any(s.request.sampling.penalised for s in running),
        )
        emission = self._rounds.run(kind, 1 + max(s.lane for s in running))
        self._landings.append(land(emission, running))
        return self._read(ahead=self._look_ahead)

    def _check(self, request: Request) -> int:
        """Return how many tokens the answer may have; RequestError for what cannot run."""
        room = self.settings.max_context - len(request.prompt)
        if not request.prompt:
            raise RequestError("the prompt is empty")
        if room < 1:
            raise RequestError(
                "the prompt is longer than the context",
                got=f"{len(request.prompt)} tokens",
                want=f"at most {self.settings.max_context - 1}",
                remedy="shorten it, or start with a larger --max-context",
            )
        vocabulary = self.geometry.text.vocab_size
        for id in (*request.prompt, *request.stops, *request.sampling.bias):
            if not 0 <= id < vocabulary:
                raise RequestError("unknown token id", got=id, want=f"0 to {vocabulary - 1}")
        if request.max_tokens < 1:
            raise RequestError("no tokens are asked for", got=request.max_tokens, want=">= 1")
        if len(request.stops) > MAX_STOP_IDS:
            raise RequestError("too many stop ids", got=len(request.stops), want=MAX_STOP_IDS)
        if len(request.sampling.bias) > MAX_BIAS:
            raise RequestError("too many biases", got=len(request.sampling.bias), want=MAX_BIAS)
        return min(request.max_tokens, room)

    def _admit(self) -> None:
        """Give lanes and pages to waiting requests, first come, first served."""
        while self._waiting and self._free_lanes:
            sequence = self._waiting[0]
            tokens = len(sequence.request.prompt) + sequence.max_tokens
            count = -(-tokens // PAGE_TOKENS)
            if count > self.pages.free:
                return
            self._waiting.popleft()
            sequence.pages = self.pages.take(count)
            sequence.lane = self._free_lanes.pop()
            device = self.settings.device
            sequence.table = torch.tensor([sequence.pages], dtype=torch.int32, device=device)
            media = sequence.request.media
            sequence.positions = (
                text_positions(len(sequence.request.prompt), device)
                if media is None
                else media.positions.to(device)
            )
            self.state.decoder.recurrent.reset(sequence.lane)
            sequence.phase = Phase.PREFILL

    def _prefill(self) -> None:
        """Run one chunk of the oldest prompt that is not complete."""
        sequence = next((s for s in self._sequences.values() if s.phase is Phase.PREFILL), None)
        if sequence is None:
            return
        assert sequence.table is not None and sequence.positions is not None
        last = len(sequence.request.prompt) - 1
        end = min(sequence.prefilled + self.settings.prefill_chunk, last)
        if end > sequence.prefilled:
            place = Place(sequence.lane, sequence.table)
            run_chunk(
                self.model, self.state, sequence.request, sequence.positions, place,
                sequence.prefilled, end,
            )  # fmt: skip
            sequence.prefilled = end
        if end == last:
            activate(self.table, sequence)
            sequence.phase = Phase.RUNNING

    def _read(self, ahead: int) -> list[Step]:
        """Hand out the tokens of launched rounds, except of the newest `ahead` ones."""
        steps: list[Step] = []
        while len(self._landings) > ahead:
            landing = self._landings.popleft()
            landing.wait()
            for sequence in landing.running:
                # One that ended after this round was launched has emitted nothing in it.
                if sequence.phase is Phase.RUNNING:
                    steps.append(self._finish_round(landing, sequence))
        return steps

    def _finish_round(self, landing: Landing, sequence: Sequence) -> Step:
        lane = sequence.lane
        count = int(landing.emitted[lane])
        new = tuple(landing.tokens[lane, :count].tolist())
        sequence.emitted.extend(new)
        finish = self._judge(sequence, new, int(landing.flags[lane]))
        error = "logits are not finite" if finish == ERROR else None
        scores = read_scores(landing, sequence, count)
        if finish is not None:
            self._release(sequence)
        return Step(sequence.number, new, self.settings.drafts, finish, error, scores)

    def _judge(self, sequence: Sequence, new: tuple[int, ...], flag: int) -> str | None:
        if flag:
            return ERROR
        if new and new[-1] in sequence.request.stops:
            return STOP
        return LENGTH if len(sequence.emitted) >= sequence.max_tokens else None

    def _release(self, sequence: Sequence) -> None:
        """Take a request out of the engine; its lane and pages are free."""
        if sequence.phase is Phase.WAITING:
            self._waiting.remove(sequence)
        else:
            idle(self.table, sequence.lane)
            self.state.decoder.recurrent.reset(sequence.lane)
            self.pages.give_back(sequence.pages)
            self._free_lanes.append(sequence.lane)
        sequence.phase = Phase.DONE
        del self._sequences[sequence.number]
