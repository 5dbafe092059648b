"""Work folders that were damaged, and what `--resume` makes of them."""

from __future__ import annotations

import json
import os
import zlib

import pytest

from builders.conversions import convert
from ninfer_formats.errors import UsageError
from ninfer_tools.convert import execution, workplace
from ninfer_tools.convert.journal import Journal, read_journal
from ninfer_tools.convert.written_runs import WrittenRuns, is_kept

WORK = ".a.ninfer.ninfer-convert"
OBJECTS = 9


def interrupt(monkeypatch, folder, out, **options):
    """Stop a conversion after nine objects; return the journal of its work folder."""
    finish, count = execution._Run._finish, [0]

    def finish_or_stop(self, parent, record):
        finish(self, parent, record)
        count[0] += 1
        if count[0] == OBJECTS:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(execution, "SYNC_BYTES", 0)
        patched.setattr(execution._Run, "_finish", finish_or_stop)
        with pytest.raises(KeyboardInterrupt):
            convert(folder, out, **options)
    return out.parent / WORK / "journal.jsonl"


def convert_anew(folder, tmp_path, **options):
    other = tmp_path / "p" / "a.ninfer"
    other.parent.mkdir()
    assert convert(folder, other, **options) == 0
    return [p.read_bytes() for p in sorted(other.parent.glob("a.ninfer*")) if p.suffix != ".json"]


@pytest.mark.parametrize("limit", [32_000_000_000, 200_000])
def test_damaged_object_is_converted_again(folder, out, tmp_path, monkeypatch, capsys, limit):
    """V-171: one byte is enough, in whatever part of the artifact."""
    journal = interrupt(monkeypatch, folder, out, max_file_bytes=limit)
    records = [json.loads(line) for line in journal.read_text().splitlines()[1:]]
    assert len(records) == OBJECTS
    damaged, kept = records[3]["object"], {r["object"] for r in records} - {records[3]["object"]}
    damage, encoded = [damaged], []
    skim, write = workplace.ResumableWriter.is_kept, execution._Run._write_parent

    def flip_first(self, id, runs):
        if id in damage:
            item = self.plan.objects[damage.pop()]
            ((_, file, at, _),) = self._extents(item.offset + item.bytes // 2, 1)
            os.pwrite(file, bytes([os.pread(file, 1, at)[0] ^ 1]), at)
        return skim(self, id, runs)

    def note(self, parent):
        encoded.append(parent.id)
        return write(self, parent)

    monkeypatch.setattr(workplace.ResumableWriter, "is_kept", flip_first)
    monkeypatch.setattr(execution._Run, "_write_parent", note)
    assert convert(folder, out, max_file_bytes=limit, resume=True) == 0
    assert damaged in encoded and not kept & set(encoded)
    assert f"what was written of {damaged} is damaged" in capsys.readouterr().err
    found = [p.read_bytes() for p in sorted(out.parent.glob("a.ninfer*")) if p.suffix != ".json"]
    assert found == convert_anew(folder, tmp_path, max_file_bytes=limit)


@pytest.mark.parametrize(
    "line",
    [b"garbage", b"\0", b"\xff", b"{}", b"[1,2]", b'{"object": "x", "check": 1}', b"[" * 100_000],
)
@pytest.mark.parametrize("place", [0, 4])
def test_unreadable_line_ends_the_journal(tmp_path, line, place):
    """V-172: what stands before it is believed, nothing behind it."""
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, "d", {})
    journal.add({str(n): {"seconds": 0.5 * n} for n in range(5)})
    journal.close()
    assert read_journal(tmp_path, "d") == {str(n): {"seconds": 0.5 * n} for n in range(5)}
    lines = path.read_bytes().split(b"\n")
    lines[place] = line
    path.write_bytes(b"\n".join(lines))
    want = {} if place == 0 else {str(n): {"seconds": 0.5 * n} for n in range(3)}
    assert read_journal(tmp_path, "d") == want


def test_changed_number_of_the_journal_is_not_believed(tmp_path):
    """V-172."""
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, "d", {})
    journal.add({"a": {"seconds": 12.5}})
    journal.close()
    path.write_bytes(path.read_bytes().replace(b"12.5", b"13.5"))
    assert read_journal(tmp_path, "d") == {}


def test_conversion_with_a_damaged_journal_starts_over(folder, out, tmp_path, monkeypatch):
    """V-172."""
    journal = interrupt(monkeypatch, folder, out)
    journal.write_bytes(b"\xff" + journal.read_bytes()[1:])
    assert convert(folder, out, resume=True) == 0
    assert [out.read_bytes()] == convert_anew(folder, tmp_path)


def test_runs_are_checksums_of_bytes_in_any_order():
    """V-171."""
    data = bytes(range(200))
    runs = WrittenRuns()
    for begin, end in ((100, 150), (0, 40), (150, 200), (40, 60), (60, 60), (60, 100)):
        runs.add(begin, memoryview(data[begin:end]))
    want = [[0, 100, zlib.crc32(data[:100])], [100, 200, zlib.crc32(data[100:])]]
    assert runs.as_record() == want

    def read(at, count):
        return data[at : at + count]

    assert is_kept(want, 200, read)
    assert not is_kept(want, 201, read) and not is_kept(want[1:], 200, read)
    assert not is_kept(None, 200, read) and not is_kept([[0, 200, 1]], 200, read)


def test_full_disk_leaves_no_work_folder(folder, out, monkeypatch):
    """V-175: nothing was written that could be resumed."""
    monkeypatch.setattr(workplace.OutputTarget, "free_bytes", lambda self: 1000)
    with pytest.raises(UsageError, match="not enough free disk space"):
        convert(folder, out)
    assert list(out.parent.iterdir()) == []


def test_link_under_the_name_of_the_work_folder_is_refused(folder, out, tmp_path):
    """V-175: nothing behind it is touched."""
    (tmp_path / "other").mkdir()
    for target in (tmp_path / "other", tmp_path / "nowhere"):
        (out.parent / WORK).symlink_to(target)
        with pytest.raises(UsageError, match="the work folder cannot be used: a link"):
            convert(folder, out)
        assert (out.parent / WORK).is_symlink()
        (out.parent / WORK).unlink()
    assert list((tmp_path / "other").iterdir()) == []
