"""The engine: requests in, tokens out, one round after the other."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import torch

from ninfer_formats.errors import NinferError
from ninfer_formats.reader import Artifact
from ninfer_runtime.config import PAGE_TOKENS, EngineConfig, Settings, resolve
from ninfer_runtime.engine.checks import check_request
from ninfer_runtime.engine.devices import free_host_memory, prepare_device
from ninfer_runtime.engine.diagnosis import find_bad_layer
from ninfer_runtime.engine.graphs import Rounds
from ninfer_runtime.engine.landing import Landing, land
from ninfer_runtime.engine.lane_writer import (
    activate,
    forbids_all,
    idle,
    restrict,
    write_mask,
    write_pages,
)
from ninfer_runtime.engine.lanes import allocate_lanes
from ninfer_runtime.engine.prefill import Place, run_chunk, text_positions
from ninfer_runtime.engine.request import (
    CANCELLED,
    ERROR,
    LENGTH,
    STOP,
    Mask,
    Request,
    Step,
)
from ninfer_runtime.engine.reservation import reserve_memory, reserve_spare
from ninfer_runtime.engine.rollback import roll_back
from ninfer_runtime.engine.round import RoundKind
from ninfer_runtime.engine.scores import read_scores
from ninfer_runtime.engine.sequence import Phase, SavedSequence, Sequence
from ninfer_runtime.engine.warm_up import warm_up
from ninfer_runtime.errors import RequestError
from ninfer_runtime.models.qwen3_5.model import (
    allocate_state,
    list_weights,
    load_model,
    read_geometry,
)
from ninfer_runtime.prefix.prefixes import Prefixes, host_bytes
from ninfer_runtime.state.kv_pages import PagePool
from ninfer_runtime.state.snapshot import drop_snapshot, restore_snapshot, take_snapshot
from ninfer_runtime.weights.budget import graph_pool
from ninfer_runtime.weights.preflight import check_artifact, enough_memory
from ninfer_runtime.weights.staging import Progress


class Engine:
    """One model on one device. Not thread-safe: one thread owns it."""

    def __init__(
        self,
        artifact: Artifact,
        config: EngineConfig,
        progress: Progress = lambda count: None,
    ) -> None:
        """Load the artifact; `progress` takes counts of bytes read. StartupError, before anything
        is taken, for what keeps the engine from starting."""
        check_artifact(artifact)
        self.geometry = read_geometry(artifact)
        self.settings: Settings = resolve(
            config, self.geometry, "proposal/head" in artifact.bindings
        )
        prepare_device(self.settings.device)
        with enough_memory(artifact, self.geometry, self.settings) as self.plan:
            if self.settings.device.type == "cuda":
                reserve_memory(self.settings.device, self.plan, self._list_tensors(artifact))
            self.model, self.load_record = load_model(
                artifact, self.geometry, self.settings, progress
            )
            self.state = allocate_state(self.geometry, self.settings, self.settings.lanes)
            self.table = allocate_lanes(self.settings, self.geometry.text.vocab_size)
            self._rounds = self._start()
            if self.settings.device.type == "cuda":
                reserve_spare(self.settings.device, self.plan)
        self.pages = PagePool(self.settings.pages)
        self.prefixes = Prefixes(
            self.state, self.settings, self.pages,
            host_bytes(self.settings.host_cache_mib, free_host_memory()),
        )  # fmt: skip
        self._free_lanes = list(range(self.settings.lanes - 1, -1, -1))
        self._sequences: dict[int, Sequence] = {}
        self._waiting: deque[Sequence] = deque()
        self._next = 0
        self._landings: deque[Landing] = deque()
        self._owes_round = False

    def _list_tensors(self, artifact: Artifact) -> list[int]:
        """Return the bytes of every tensor of weights, state and lanes, in order of allocation."""
        weights = list_weights(artifact, self.geometry, self.settings)
        empty = replace(self.settings, device=torch.device("meta"))
        state = allocate_state(self.geometry, empty, self.settings.lanes)
        table = allocate_lanes(empty, self.geometry.text.vocab_size)
        caches = [plane for cache in state.caches for plane in cache.planes]
        recurrent = (*state.decoder.recurrent.planes, *state.snapshots)
        others = (*caches, *recurrent, *table.planes, table.pages, table.slots)
        return [*weights, *(tensor.nbytes for tensor in others)]

    def _start(self) -> Rounds:
        """Compile, load and capture whatever requests will run; nothing is left of it in lanes."""
        if self.settings.device.type == "cuda":
            warm_up(self.model, self.state, self.settings)
        pool = graph_pool(self.geometry, self.plan.shape) if self.settings.cuda_graph else None
        return Rounds(self.model, self.state, self.table, pool)

    @property
    def busy(self) -> bool:
        """Whether any request is not finished."""
        return bool(self._sequences)

    @property
    def waiting(self) -> int:
        """How many requests have no lane yet."""
        return len(self._waiting)

    def find(self, number: int) -> Sequence | None:
        """Return where a request stands, to look at only; None when it is over."""
        return self._sequences.get(number)

    def add(self, request: Request) -> int:
        """Take a request; return its number. RequestError when it can never run."""
        max_tokens = check_request(request, self.settings, self.model)
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
        self.rewind(number, len(sequence.emitted))
        self._release(sequence, len(sequence.emitted))
        return Step(number, (), 0, CANCELLED)

    def truncate(self, number: int, keep: int, shown: int | None = None) -> Step | None:
        """End a request so that its first `keep` tokens count, of which the first `shown` (None:
        all) are what a later prompt will repeat.

        `keep` as for `rewind`, which this does first. None when its newest step ended it anyway.
        """
        sequence = self._sequences.get(number)
        if sequence is None:
            return None
        self.rewind(number, keep)
        self._release(sequence, keep if shown is None else shown)
        return Step(number, (), 0, STOP)

    def rewind(self, number: int, keep: int) -> None:
        """Take a request back to its first `keep` tokens, from which it goes on.

        A round that is under way counts for nothing. RequestError when the request is over, or
        when `keep` is not within the tokens of its newest step.
        """
        sequence = self._sequences.get(number)
        if sequence is None:
            raise RequestError("the request is over", got=number)
        most = len(sequence.emitted)
        if not sequence.reach <= keep <= most:
            raise RequestError(
                "only tokens of the newest step can be taken back", got=f"{keep} kept",
                want=f"{sequence.reach} to {most}",
            )  # fmt: skip
        if sequence.phase is Phase.RUNNING:
            self._landings = deque(landing.without(sequence) for landing in self._landings)
            del sequence.emitted[keep:]
            # The next round writes what stays into the state for good.
            sequence.reach = keep
            roll_back(self.table, self.state.decoder.recurrent, sequence, keep)

    def constrain(self, number: int, mask: Mask | None) -> None:
        """Give a running request another mask, or none, from its next token on.

        A round that is under way counts for nothing. RequestError when the request does not run.
        """
        sequence = self._sequences.get(number)
        if sequence is None or sequence.phase is not Phase.RUNNING:
            raise RequestError("only a running request can be constrained", got=number)
        self.rewind(number, len(sequence.emitted))
        sequence.request = replace(sequence.request, mask=mask)
        restrict(self.table, sequence)

    def step(self) -> list[Step]:
        """Do one piece of work: admit, at most one prefill chunk, at most one round."""
        self._admit()
        if not self._owes_round:
            self._prefill()
        # Rounds read late become rounds read at once: a step has one round of each request.
        self._owes_round = bool(self._landings) and any(s.request.mask for s in self._running())
        if self._owes_round:
            return self._read(ahead=0)
        failed = self._write_masks()
        running = self._running()
        if not running:
            return failed + self._read(ahead=0)
        kind = RoundKind(
            wide=any(s.request.sampling.wide for s in running),
            penalised=any(s.request.sampling.penalised for s in running),
            masked=any(s.request.mask is not None for s in running),
        )
        emission = self._rounds.run(kind, 1 + max(s.lane for s in running))
        self._landings.append(land(emission, running))
        # A mask depends on the newest token, which must have been read.
        return failed + self._read(ahead=int(self.settings.look_ahead and not kind.masked))

    def settle(self) -> list[Step]:
        """Hand out the tokens of every launched round."""
        return self._read(ahead=0)

    def snapshot(self, number: int) -> SavedSequence:
        """Save a running request as it is; it goes on undisturbed. The engine must be settled.
        NinferError when it is not, when the request does not run, or when no page is free."""
        sequence = self._sequences.get(number)
        if sequence is None or sequence.phase is not Phase.RUNNING or self._landings:
            raise NinferError("only a running request of a settled engine can be saved", got=number)
        assert sequence.positions is not None
        tokens = len(sequence.request.prompt) - 1 + len(sequence.emitted)
        state = take_snapshot(
            self._planes(), self.state.caches, self.pages, sequence.lane, sequence.pages, tokens
        )
        return SavedSequence(
            sequence.request, sequence.max_tokens, sequence.positions, tuple(sequence.emitted),
            state,
        )  # fmt: skip

    def restore(self, saved: SavedSequence) -> int:
        """Let a saved request go on in a lane of its own; return its new number. `saved` can be
        restored again. NinferError when no lane or too few pages are free."""
        if not self._free_lanes:
            raise NinferError("no lane is free", got=0, want=1)
        lane = self._free_lanes[-1]
        count = -(-(len(saved.request.prompt) + saved.max_tokens) // PAGE_TOKENS)
        pages = restore_snapshot(
            saved.state, self._planes(), self.state.caches, self.pages, lane, count
        )
        self._free_lanes.pop()
        table = torch.tensor([pages], dtype=torch.int32, device=self.settings.device)
        sequence = Sequence(
            self._next, saved.request, saved.max_tokens, Phase.RUNNING, lane, pages, table,
            saved.positions, len(saved.request.prompt) - 1, list(saved.emitted),
        )  # fmt: skip
        write_pages(self.table, sequence)
        self._next += 1
        self._sequences[sequence.number] = sequence
        return sequence.number

    def drop(self, saved: SavedSequence) -> None:
        """Free what a saved request holds."""
        drop_snapshot(saved.state, self.pages)

    def _planes(self) -> tuple[torch.Tensor, ...]:
        return (*self.state.decoder.recurrent.planes, *self.table.planes)

    def _admit(self) -> None:
        """Give lanes and pages to waiting requests, first come, first served."""
        while self._waiting and self._free_lanes and self.prefixes.ready(self._sequences.values()):
            sequence, lane = self._waiting[0], self._free_lanes[-1]
            tokens = len(sequence.request.prompt) + sequence.max_tokens
            if not self.prefixes.admit(sequence, lane, -(-tokens // PAGE_TOKENS)):
                return
            self._waiting.popleft()
            sequence.lane = self._free_lanes.pop()
            device = self.settings.device
            sequence.table = torch.tensor([sequence.pages], dtype=torch.int32, device=device)
            media = sequence.request.media
            sequence.positions = (
                text_positions(len(sequence.request.prompt))
                if media is None
                else media.positions.cpu()
            )
            sequence.phase = Phase.PREFILL

    def _prefill(self) -> None:
        """Run one chunk of the oldest prompt that is not complete."""
        sequence = next((s for s in self._sequences.values() if s.phase is Phase.PREFILL), None)
        if sequence is None:
            return
        assert sequence.table is not None and sequence.positions is not None
        last = len(sequence.request.prompt) - 1
        end = min(sequence.prefilled + self.settings.prefill_chunk, last)
        end = self.prefixes.next_stop(sequence, end)
        if end > sequence.prefilled:
            place = Place(sequence.lane, sequence.table)
            run_chunk(
                self.model, self.state, sequence.request, sequence.positions, place,
                sequence.prefilled, end,
            )  # fmt: skip
            sequence.prefilled = end
            self.prefixes.note_chunk(sequence)
        if end == last:
            activate(self.table, sequence)
            sequence.phase = Phase.RUNNING

    def _running(self) -> tuple[Sequence, ...]:
        return tuple(s for s in self._sequences.values() if s.phase is Phase.RUNNING)

    def _write_masks(self) -> list[Step]:
        """Ask every mask what may come next; end the requests whose mask fails."""
        steps = []
        for sequence in self._running():
            try:
                write_mask(self.table, sequence)
            except Exception as error:  # a caller's code: it must end no other request
                self._release(sequence)
                reason = " ".join(f"{type(error).__name__}: {error}".split())
                steps.append(Step(sequence.number, (), 0, ERROR, f"the mask failed: {reason}"))
        return steps

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
        sequence.reach = len(sequence.emitted)
        sequence.emitted.extend(new)
        finish = self._judge(sequence, new, int(landing.flags[lane]))
        error = self._explain(sequence) if finish == ERROR else None
        scores = read_scores(landing, sequence, count)
        if finish == ERROR:
            self.prefixes.forget(sequence)
            self._release(sequence)
        elif finish is not None and not sequence.request.held:
            self._release(sequence, len(sequence.emitted))
        return Step(sequence.number, new, self.settings.drafts, finish, error, scores)

    def _judge(self, sequence: Sequence, new: tuple[int, ...], flag: int) -> str | None:
        if flag:
            return ERROR
        if new and new[-1] in sequence.request.stops:
            return STOP
        return LENGTH if len(sequence.emitted) >= sequence.max_tokens else None

    def _explain(self, sequence: Sequence) -> str:
        vocabulary = self.geometry.text.vocab_size
        if sequence.request.mask is not None and forbids_all(self.table, sequence, vocabulary):
            return "the mask allows no token"
        place = find_bad_layer(self.model, self.state, self.table, sequence.lane)
        return f"logits are not finite; the first place: {place}"

    def _release(self, sequence: Sequence, shown: int | None = None) -> None:
        """Take a request out of the engine; its lane and pages are free. With `shown` its state
        behind so many tokens may be kept."""
        if shown is not None:
            self.prefixes.note_end(sequence, shown)
        if sequence.phase is Phase.WAITING:
            self._waiting.remove(sequence)
        else:
            idle(self.table, sequence.lane)
            self.state.decoder.recurrent.reset(sequence.lane)
            self.pages.give_back(sequence.pages)
            self._free_lanes.append(sequence.lane)
        sequence.phase = Phase.DONE
        del self._sequences[sequence.number]
