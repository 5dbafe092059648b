"""Laws of reading ahead and writing behind: specs/conversion.md, V-160 to V-163."""

from __future__ import annotations

import gc
import threading

import pytest

from builders.checkpoints import build_checkpoint
from builders.conversions import convert, read_report
from ninfer_tools.convert import execution
from ninfer_tools.convert.collector import pause_collector
from ninfer_tools.convert.devices import Device
from ninfer_tools.convert.encoders import TileWorkers
from ninfer_tools.convert.ordered_pool import OrderedPool
from ninfer_tools.convert.workplace import ResumableWriter
from ninfer_tools.convert.write_behind import WriteBehind


def test_jobs_run_in_order_on_another_thread_and_all_before_the_end():
    """V-160."""
    ran = []
    with WriteBehind(most_bytes=3) as behind:
        for number in range(200):
            behind.put(lambda n=number: ran.append((n, threading.get_ident())), 1)
        behind.drain()
        assert [n for n, _ in ran] == list(range(200))
        behind.put(lambda: ran.append((200, 0)))
    assert ran[-1] == (200, 0)
    assert threading.get_ident() not in {thread for _, thread in ran}


def test_jobs_wait_for_room_and_one_that_is_too_large_for_an_empty_queue():
    """V-162."""
    gate, second = threading.Event(), threading.Event()
    with WriteBehind(most_bytes=10) as behind:
        behind.put(gate.wait, 1000)
        late = threading.Thread(target=lambda: (behind.put(int, 1), second.set()))
        late.start()
        assert not second.wait(0.1)
        gate.set()
        assert second.wait(10)
        late.join()


def test_first_error_is_raised_and_no_later_job_begins():
    """V-161."""
    ran, gate = [], threading.Event()

    def fail():
        gate.wait()
        raise OSError("disk is gone")

    with pytest.raises(OSError, match="disk is gone"), WriteBehind(100) as behind:
        behind.put(fail)
        behind.put(lambda: ran.append("later"))
        gate.set()
        behind.drain()
    assert not ran


def test_error_of_the_last_job_is_not_lost():
    """V-161: the block ends well, the job behind it does not."""
    with pytest.raises(ZeroDivisionError), WriteBehind(100) as behind:
        behind.put(lambda: 1 // 0)


def test_block_that_ends_badly_drops_what_waits_and_outlives_what_runs():
    """V-161: files are closed after the block, so no job may touch them then."""
    ran, begun, gate = [], threading.Event(), threading.Event()

    def run():
        begun.set()
        gate.wait()
        ran.append("running")

    with pytest.raises(KeyboardInterrupt), WriteBehind(100) as behind:
        behind.put(run)
        behind.put(lambda: ran.append("waiting"))
        begun.wait()
        threading.Timer(0.1, gate.set).start()
        raise KeyboardInterrupt
    assert ran == ["running"]


@pytest.mark.parametrize("threads", [1, 3])
def test_ranges_come_in_order_and_few_are_read_ahead(threads):
    """V-160 and V-162."""
    begun, lock = [], threading.Lock()

    def read(begin, end):
        with lock:
            begun.append(begin)
        return end - begin

    ranges = [(at, at + at % 7) for at in range(50)]
    with OrderedPool(threads, 1, "read-ahead") as ahead:
        for index, (rows, count) in enumerate(ahead.stream(read, ranges)):
            assert rows == ranges[index] and count == index % 7
            assert len(begun) <= index + threads + 1
    assert sorted(begun) == list(range(50))


def test_error_of_a_reader_comes_after_the_ranges_before_it():
    """V-161."""
    seen = []
    with OrderedPool(2, 1, "read-ahead") as ahead, pytest.raises(ZeroDivisionError):
        for rows, _ in ahead.stream(lambda begin, _: 1 // (begin - 3), [(n, n) for n in range(9)]):
            seen.append(rows[0])
    assert seen == [0, 1, 2]


@pytest.mark.parametrize("profile", ["nvfp4", "groupwise-int", "bf16"])
def test_blocks_readers_and_room_change_no_byte(tmp_path, monkeypatch, profile):
    """V-160 and V-163."""
    folder = build_checkpoint().write(tmp_path / "m")
    assert convert(folder, tmp_path / "a.ninfer", profile=profile) == 0
    for number, sizes in enumerate([(1, 3, 1), (1 << 25, 2, 1 << 29)]):
        device = Device(TileWorkers("cpu", threads=1 + number), *sizes)
        monkeypatch.setattr(execution, "choose_device", lambda name, device=device: device)
        out = tmp_path / f"b{number}" / "a.ninfer"
        out.parent.mkdir()
        assert convert(folder, out, profile=profile) == 0
        assert out.read_bytes() == (tmp_path / "a.ninfer").read_bytes()
        figures = [read_report(path)["objects"] for path in (out, tmp_path / "a.ninfer")]
        for mine, other in zip(*figures, strict=True):
            assert mine["exact"] == other["exact"]
            if mine["errors"] is not None:
                assert mine["errors"] == pytest.approx(other["errors"], rel=1e-12)


def test_write_that_fails_behind_the_encoder_ends_the_conversion(tmp_path, monkeypatch):
    """V-161: with the error itself; what is durable stays for --resume."""
    folder, out = build_checkpoint().write(tmp_path / "m"), tmp_path / "a.ninfer"
    write, count = ResumableWriter.write, []

    def write_some(self, object_id, data, at=0):
        count.append(object_id)
        if len(count) > 40:
            raise PermissionError(13, "medium was removed")
        write(self, object_id, data, at)

    with monkeypatch.context() as patched:
        patched.setattr(ResumableWriter, "write", write_some)
        with pytest.raises(PermissionError, match="medium was removed"):
            convert(folder, out)
    assert len(count) == 41 and not out.exists()
    assert convert(folder, out, resume=True) == 0


def test_collector_is_as_it_was_after_a_pause():
    assert gc.isenabled()
    with pytest.raises(ValueError), pause_collector():
        assert not gc.isenabled()
        raise ValueError
    assert gc.isenabled()
    gc.disable()
    try:
        with pause_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
