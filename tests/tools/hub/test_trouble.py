"""Laws of a pull on a bad day: one line, what has arrived is kept, no bad file has a name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from huggingface_hub import constants

from builders.hub_server import Fault
from ninfer_tools.hub.listing import HubFile
from ninfer_tools.hub.partial import Partial, partial_path

REPOSITORY = "someone/Model-NInfer"
TARGET = f"{REPOSITORY}@main"
NAME = "m.ninfer"


@pytest.fixture
def published(hub, artifact):
    hub.commit(REPOSITORY, {NAME: artifact})
    return artifact


def partial_of(hub, out, name=NAME):
    """The path of the partial file of what `main` holds."""
    found = [digest for digest, own in hub.names.items() if own == name]
    return partial_path(out / name, found[-1])


def leave(path, data):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)


def assert_failed(answer, out, message, code=1):
    """One line says it, and nothing has the final name."""
    assert answer.code == code
    assert message in answer.failure
    assert "Traceback" not in answer.err
    assert not (out / NAME).exists()


def test_cut_connection_is_taken_up_where_it_broke(hub, pull, out, published, pauses):
    """P-11 (case 50)."""
    hub.fail(NAME, Fault(cut=10_000), Fault(cut=5_000))
    assert pull(TARGET).code == 0
    assert (out / NAME).read_bytes() == published
    ranges = [item.range for item in hub.content_requests(NAME) if item.host == "content"]
    assert ranges == [None, "bytes=10000-30723", "bytes=15000-30723"]
    assert hub.sent(NAME) == len(published)
    assert pauses == [1, 1]


def test_stalled_connection_is_given_up_and_taken_up(hub, pull, out, published, monkeypatch):
    """P-11 (case 50)."""
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.2)
    hub.fail(NAME, Fault(cut=10_000, stall=1.0))
    assert pull(TARGET).code == 0
    assert (out / NAME).read_bytes() == published


def test_attempts_that_bring_nothing_end_and_keep_what_is_there(hub, pull, out, published, pauses):
    """P-11."""
    hub.fail(NAME, Fault(cut=10_000), *[Fault(cut=0)] * 20)
    assert_failed(pull(TARGET), out, "the connection was cut")
    assert partial_of(hub, out).read_bytes() == published[:10_000]
    assert pauses == [1, 1, 2, 4, 8]


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_server_in_trouble_is_asked_again(hub, pull, out, published, status):
    """P-11."""
    hub.fail(NAME, Fault(status=status))
    assert pull(TARGET).code == 0


def test_refused_content_is_not_asked_again(hub, pull, out, published):
    """P-11."""
    hub.fail(NAME, Fault(status=403))
    assert_failed(pull(TARGET), out, "the hub refuses access (got status 403)")
    assert len([item for item in hub.content_requests(NAME) if item.host == "content"]) == 1


def test_second_run_asks_only_for_the_rest(hub, pull, out, published):
    """P-10 (case 50)."""
    leave(partial_of(hub, out), published[:12_345])
    answer = pull(TARGET)
    assert answer.code == 0
    assert "12.06 KiB are there, going on" in answer.err
    assert hub.sent(NAME) == len(published) - 12_345
    assert (out / NAME).read_bytes() == published
    assert [path.name for path in out.iterdir()] == [NAME]


def test_complete_partial_needs_no_download(hub, pull, out, published):
    """P-10."""
    leave(partial_of(hub, out), published)
    assert pull(TARGET).code == 0
    assert hub.sent(NAME) == 0


def test_partial_larger_than_the_file_starts_over(hub, pull, out, published):
    """P-10 (case 50)."""
    leave(partial_of(hub, out), published + b"x")
    answer = pull(TARGET)
    assert answer.code == 0
    assert "too long, starting over" in answer.err
    assert (out / NAME).read_bytes() == published


def test_partial_of_another_revision_is_never_taken_up(hub, pull, out, published):
    """P-9 (case 50): the old one is removed, the new one starts at zero."""
    old = partial_of(hub, out)
    leave(old, published[:20_000])
    newer = published[:-1] + b"\x41"
    hub.commit(REPOSITORY, {NAME: newer})
    answer = pull(TARGET)
    assert answer.code == 0
    assert f"removed {old.name}: left over from another revision" in answer.err
    assert (out / NAME).read_bytes() == newer
    assert [path.name for path in out.iterdir()] == [NAME]


def test_same_content_of_another_revision_is_taken_up(hub, pull, out, published):
    """P-9: what counts is the content, not the commit."""
    leave(partial_of(hub, out), published[:20_000])
    hub.commit(REPOSITORY, {NAME: published, "README.md": b"new"})
    assert pull(TARGET).code == 0
    assert hub.sent(NAME) == len(published) - 20_000


def test_branch_that_moves_during_the_pull_changes_nothing(hub, pull, out, published):
    """P-3 (case 50)."""
    hub.commit(REPOSITORY, {NAME: published[:-1] + b"\x41"}, branch="next")
    hub.move_after_listing(REPOSITORY, "main", hub.repositories[REPOSITORY].branches["next"])
    hub.fail(NAME, Fault(cut=10_000))
    assert pull(TARGET).code == 0
    assert (out / NAME).read_bytes() == published


def test_mismatch_is_found_and_the_next_run_starts_over(hub, pull, out, published):
    """P-13."""
    hub.fail(NAME, Fault(content=bytes(len(published))))
    assert_failed(pull(TARGET), out, "the bytes received do not have the sha256 of hub")
    assert partial_of(hub, out).stat().st_size == len(published)
    answer = pull(TARGET)
    assert answer.code == 0
    assert "damaged, starting over" in answer.err
    assert (out / NAME).read_bytes() == published


def test_damaged_beginning_does_not_pass(hub, pull, out, published):
    """P-13: the bytes of an earlier run are checked like the new ones."""
    leave(partial_of(hub, out), b"\0" * 12_345)
    assert_failed(pull(TARGET), out, "do not have the sha256")
    assert pull(TARGET).code == 0


def test_small_file_is_checked_by_its_git_id(hub, pull, out):
    """P-13."""
    hub.commit(REPOSITORY, {"x.txt": b"right"})
    hub.fail("x.txt", Fault(content=b"wrong"))
    answer = pull(TARGET, "x.txt")
    assert (answer.code, (out / "x.txt").exists()) == (1, False)
    assert "the git-blob of hub" in answer.failure


def test_login_page_is_not_taken_for_the_file(hub, pull, out, published):
    """P-12 (case 47)."""
    leave(partial_of(hub, out), published[:100])
    hub.fail(NAME, Fault(html=True))
    assert_failed(pull(TARGET), out, "got an HTML page")
    assert partial_of(hub, out).read_bytes() == published[:100]


def test_server_without_ranges_sends_the_whole_again(hub, pull, out, published):
    """P-10."""
    leave(partial_of(hub, out), b"\0" * 100)
    hub.fail(NAME, Fault(whole=True))
    answer = pull(TARGET)
    assert answer.code == 0
    assert "the server cannot go on, starting over" in answer.err
    assert (out / NAME).read_bytes() == published


def test_refused_range_starts_over_once(hub, pull, out, published):
    """P-10 (case 50: status 416)."""
    leave(partial_of(hub, out), published[:100])
    hub.fail(NAME, Fault(status=416))
    answer = pull(TARGET)
    assert answer.code == 0
    assert "refuses to go on, starting over" in answer.err
    assert hub.sent(NAME) == len(published)


def test_range_refused_twice_is_an_error(hub, pull, out, published):
    """P-10."""
    hub.fail(NAME, *[Fault(status=416)] * 2)
    assert_failed(pull(TARGET), out, "the server has no such byte range")


def test_more_bytes_than_the_file_has_are_refused(hub, pull, out, published):
    """P-12."""
    hub.fail(NAME, Fault(more=b"x"))
    assert_failed(pull(TARGET), out, "the server sent more bytes than the file has")


def test_contradicting_sums_stop_before_the_download(hub, pull, out, artifact):
    """P-13."""
    hub.commit(REPOSITORY, {NAME: artifact, "SHA256SUMS": f"{'a' * 64}  {NAME}\n".encode()})
    assert_failed(pull(TARGET), out, "SHA256SUMS and hub name different contents")
    assert (hub.sent(NAME), out.exists()) == (0, False)


def test_wrong_revision_is_one_line(hub, pull, out, published):
    """P-18."""
    answer = pull(f"{REPOSITORY}@absent")
    assert_failed(answer, out, f"{REPOSITORY}@absent: the repository has no such revision", 2)
    assert answer.err.count("\n") == 1


def test_no_network_is_one_line(hub, pull, out, monkeypatch):
    """P-18."""
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    answer = pull(TARGET)
    assert_failed(answer, out, "the hub cannot be reached")
    assert answer.err.count("\n") == 1


def test_file_nobody_vouches_for_is_refused(hub, pull, out, published, monkeypatch):
    """P-13: a cache that another program filled has no listing, so no digests."""
    from huggingface_hub import hf_hub_download

    hf_hub_download(REPOSITORY, NAME, revision="main")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    leave(out / NAME, published)
    answer = pull(TARGET)
    assert answer.code == 1
    assert "offline, nothing says what this file must contain" in answer.failure


def test_offline_pull_verifies_but_does_not_download(hub, pull, out, published, monkeypatch):
    """P-4."""
    from huggingface_hub import snapshot_download

    snapshot_download(REPOSITORY, revision="main")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert_failed(pull(TARGET), out, "offline mode is on")
    leave(out / NAME, published)
    assert pull(TARGET).code == 0


def test_error_is_a_json_object_when_asked(hub, pull):
    """P-18."""
    answer = pull("a/b@main", "--json")
    assert answer.record["error"]["exit_code"] == answer.code == 2


def test_too_small_disk_is_refused_before_the_download(hub, pull, out, published, monkeypatch):
    """P-15: and what is there already counts."""
    leave(partial_of(hub, out), published[:20_000])
    free = (1 << 20) + len(published) - 20_000
    monkeypatch.setattr("os.statvfs", lambda path: SimpleNamespace(f_bavail=free - 1, f_frsize=1))
    assert_failed(pull(TARGET), out, "not enough free disk space", 2)
    assert hub.sent(NAME) == 0
    monkeypatch.setattr("os.statvfs", lambda path: SimpleNamespace(f_bavail=free, f_frsize=1))
    assert pull(TARGET).code == 0


def test_folder_that_cannot_be_made_is_bad_usage(hub, pull, out, published):
    """P-15."""
    out.write_text("a file")
    answer = pull(TARGET)
    assert (answer.code, hub.sent(NAME)) == (2, 0)
    assert "cannot write here" in answer.failure


def test_disk_that_fills_up_keeps_what_was_written(hub, out, published):
    """P-17: a limit on file sizes stands for the full disk."""
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000));"
        "import runpy; runpy.run_module('ninfer_tools', run_name='__main__')"
    )
    command = [sys.executable, "-c", program, "pull", TARGET, "--to", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(hub, out))
    assert (done.returncode, (out / NAME).exists()) == (1, False), done.stderr
    line = done.stderr.splitlines()[-1]
    assert "writing stopped: File too large (got 9000 bytes written, want 30724 bytes)" in line
    assert partial_of(hub, out).read_bytes() == published[:9000]


def test_killed_pull_is_taken_up(hub, pull, out, published):
    """P-10 (case 50: kill at 40 % and run again)."""
    hub.fail(NAME, Fault(cut=12_000, stall=30))
    command = [sys.executable, "-m", "ninfer_tools", "pull", TARGET, "--to", str(out)]
    process = subprocess.Popen(command, env=environment(hub, out), stderr=subprocess.DEVNULL)
    path = partial_of(hub, out)
    deadline = time.monotonic() + 30
    while not (path.exists() and path.stat().st_size == 12_000):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (out / NAME).exists()
    assert pull(TARGET).code == 0
    assert hub.content_requests(NAME)[-1].range == "bytes=12000-30723"
    assert (out / NAME).read_bytes() == published


def test_interrupt_keeps_what_has_arrived(hub, pull, out, published, monkeypatch):
    """P-10."""
    hub.fail(NAME, Fault(cut=10_000))

    def interrupt(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr("ninfer_tools.hub.transfer.time", SimpleNamespace(sleep=interrupt))
    assert_failed(pull(TARGET), out, "interrupted; what has arrived is kept", 130)
    assert partial_of(hub, out).stat().st_size == 10_000


def test_two_pulls_of_one_file_do_not_mix(hub, pull, out, published):
    """P-9."""
    out.mkdir()
    digest = next(iter(hub.names))
    other = Partial(out / NAME, HubFile(NAME, len(published), sha256=digest))
    assert_failed(pull(TARGET), out, "another process is downloading this file", 2)
    other.close()
    assert pull(TARGET).code == 0


def test_partial_that_is_a_link_is_not_followed(hub, pull, out, published, tmp_path):
    """P-9."""
    out.mkdir()
    (tmp_path / "victim").write_bytes(b"precious")
    partial_of(hub, out).symlink_to(tmp_path / "victim")
    assert pull(TARGET).code != 0
    assert (tmp_path / "victim").read_bytes() == b"precious"


def test_file_that_appears_meanwhile_is_left_as_it_is(hub, pull, out, published, monkeypatch):
    """P-14."""
    real = Partial.publish

    def publish(self, force):
        self.final.write_bytes(b"somebody else's")
        real(self, force)

    monkeypatch.setattr(Partial, "publish", publish)
    assert pull(TARGET).code == 2
    assert (out / NAME).read_bytes() == b"somebody else's"


def environment(hub, out):
    """A process's variables: this hub, and a cache of its own."""
    home = str(out.parent / "home")
    return {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": home, "HF_TOKEN": ""}
