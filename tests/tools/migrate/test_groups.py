"""Laws of groups, templates and refusals: `specs/migration.md`, M-7 to M-14."""

from __future__ import annotations

import json
import os

import pytest
from typer.testing import CliRunner

from builders.artifact_bytes import save_multi_file
from builders.sparse_files import fingerprint, legacy_objects, save_legacy
from ninfer_formats.output_target import OutputTarget
from ninfer_formats.reader import open_artifact
from ninfer_tools.cli import app


def invoke(*arguments):
    return CliRunner().invoke(app, ["migrate", *map(str, arguments)])


def migrate(*arguments):
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refuse(*arguments, code):
    result = invoke(*arguments)
    assert result.exit_code == code, result.output
    assert len(result.stderr.strip().splitlines()) == 1
    return result.stderr


def test_added_group_equals_the_file_that_had_it_all_along(tmp_path):
    """M-8: and dropping it gives the file without."""
    plain = save_legacy(tmp_path / "plain.ninfer", "3.8 int")
    full = save_legacy(tmp_path / "full.ninfer", "3.8 int dflash2")
    migrate(plain, tmp_path / "a.ninfer", "--to", 2, "--add", f"dflash2={full}")
    assert fingerprint(tmp_path / "a.ninfer") == fingerprint(full)
    migrate(full, tmp_path / "b.ninfer", "--to", 2, "--drop", "dflash2")
    assert fingerprint(tmp_path / "b.ninfer") == fingerprint(plain)


def test_every_group_can_leave_and_return_in_version_3(tmp_path):
    """M-7, M-8."""
    full = save_legacy(tmp_path / "full.ninfer", "3.8 int dflash2")
    bare = tmp_path / "bare.ninfer"
    migrate(full, bare, "--drop", "vision", "--drop", "mtp", "--drop", "dflash2")
    artifact = open_artifact(bare)
    assert list(artifact.components) == ["text"]
    assert not any(n.startswith(("vision", "mtp", "dflash2")) for n in artifact.bindings)
    assert {use.input.split("/")[0] for use in artifact.uses} == {"text"}
    assert len(artifact.objects) == 1190 - 66 - 12 - 333 - 2
    back = tmp_path / "back.ninfer"
    groups = [
        item for group in ("mtp", "vision", "dflash2") for item in ("--add", f"{group}={full}")
    ]
    migrate(bare, back, *groups)
    assert len(open_artifact(back).uses) == 844
    migrate(back, tmp_path / "v2.ninfer", "--to", 2)
    assert fingerprint(tmp_path / "v2.ninfer") == fingerprint(full)


def test_template_is_replaced_and_the_rest_stays(tmp_path):
    """M-9."""
    old = save_legacy(tmp_path / "old.ninfer", "3.8 int")
    template = tmp_path / "mine.jinja"
    template.write_text("{{ messages }} ü")
    migrate(old, tmp_path / "new.ninfer", "--to", 2, "--chat-template", template)
    new = open_artifact(tmp_path / "new.ninfer")
    assert new.resource("chat_template.jinja") == template.read_bytes()
    before = open_artifact(old)
    for name in ("frontend/tokenizer.json", "text/layers/0/mlp/down", "vision/merger/norm/bias"):
        assert bytes(new.raw_payload(name)[:32]) == bytes(before.raw_payload(name)[:32])
        assert bytes(new.raw_payload(name)[-32:]) == bytes(before.raw_payload(name)[-32:])


@pytest.mark.parametrize("data", [b"", b" \n", b"\xff", b"a\0b"])
def test_template_that_is_no_text_is_refused(tmp_path, data):
    """M-9."""
    old = save_legacy(tmp_path / "old.ninfer", "3.8 int")
    (tmp_path / "bad.jinja").write_bytes(data)
    refuse(old, tmp_path / "new.ninfer", "--chat-template", tmp_path / "bad.jinja", code=2)
    assert not (tmp_path / "new.ninfer").exists()


def test_partial_group_is_refused_naming_every_missing_object(tmp_path):
    """M-10: unless it is dropped."""
    gone = [item.id for item in legacy_objects("3.8 int dflash2") if "dflash2/layers/2" in item.id]
    cut = save_legacy(tmp_path / "cut.ninfer", "3.8 int dflash2", without=tuple(gone))
    message = refuse(cut, tmp_path / "new.ninfer", code=1)
    assert all(name in message for name in gone)
    migrate(cut, tmp_path / "new.ninfer", "--to", 2, "--drop", "dflash2")
    plain = save_legacy(tmp_path / "plain.ninfer", "3.8 int")
    assert fingerprint(tmp_path / "new.ninfer") == fingerprint(plain)


def test_partial_group_is_refused_even_when_nothing_is_to_change(tmp_path):
    """M-6, M-10: a copy of a broken file is no migration."""
    gone = "dflash2/layers/2/input_norm"
    cut = save_legacy(tmp_path / "cut.ninfer", "3.8 int dflash2", without=(gone,))
    message = refuse(cut, tmp_path / "new.ninfer", "--to", "2", code=1)
    assert gone in message


def test_same_path_is_refused_even_with_force_and_through_a_link(tmp_path):
    """M-11."""
    old = save_legacy(tmp_path / "old.ninfer", "3.8 int")
    before = fingerprint(old)
    (tmp_path / "link.ninfer").symlink_to(old)
    for output in (old, tmp_path / "link.ninfer"):
        assert "same file" in refuse(old, output, "--force", code=2)
    assert fingerprint(old) == before


def test_existing_output_needs_force(tmp_path):
    """M-11."""
    old = save_legacy(tmp_path / "old.ninfer", "3.8 int")
    output = tmp_path / "new.ninfer"
    output.write_text("mine")
    assert "exists" in refuse(old, output, code=2)
    assert output.read_text() == "mine"
    migrate(old, output, "--force")
    assert open_artifact(output).version == 3


def test_force_takes_the_parts_of_the_replaced_artifact_away(tmp_path):
    """M-11."""
    old = save_legacy(tmp_path / "old.ninfer", "3.8 int")
    output = save_multi_file(tmp_path, "new.ninfer")
    migrate(old, output, "--force")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new.ninfer", "old.ninfer"]


def test_full_disk_is_refused_before_the_first_byte(tmp_path, monkeypatch):
    """M-12."""
    old = save_legacy(tmp_path / "old.ninfer", "3.8 int")
    monkeypatch.setattr(OutputTarget, "free_bytes", lambda self: 10 * 2**20)
    assert "not enough free disk space" in refuse(old, tmp_path / "new.ninfer", code=2)
    assert [p.name for p in tmp_path.iterdir()] == ["old.ninfer"]


def test_dry_run_plans_and_writes_nothing(tmp_path):
    """M-13."""
    old = save_legacy(tmp_path / "old.ninfer", "3.8 int")
    report = migrate(old, tmp_path / "new.ninfer", "--dry-run")
    assert report["dry_run"]
    assert report["objects"] == 1124
    assert [p.name for p in tmp_path.iterdir()] == ["old.ninfer"]


REFUSED = {
    "unknown group": ["--drop", "text"],
    "absent group": ["--drop", "dflash"],
    "addition without a file": ["--add", "dflash2"],
    "artifact id that is none": ["--artifact-id", "xyz"],
    "identity that is none": ["--to", "2", "--identity", "qwen"],
}


@pytest.mark.parametrize("case", REFUSED)
def test_impossible_request_is_one_line(tmp_path, case):
    old = save_legacy(tmp_path / "old.ninfer", "3.8 int")
    refuse(old, tmp_path / "new.ninfer", *REFUSED[case], code=2)
    assert not (tmp_path / "new.ninfer").exists()


def test_group_of_another_model_is_refused(tmp_path):
    """M-8."""
    small = save_legacy(tmp_path / "small.ninfer", "35b int")
    full = save_legacy(tmp_path / "full.ninfer", "3.8 int dflash2")
    message = refuse(small, tmp_path / "new.ninfer", "--add", f"dflash2={full}", code=1)
    assert "another model" in message


def test_group_that_is_there_already_is_refused(tmp_path):
    """M-8."""
    full = save_legacy(tmp_path / "full.ninfer", "3.8 int dflash2")
    refuse(full, tmp_path / "new.ninfer", "--add", f"dflash2={full}", code=2)


def test_unregistered_identity_cannot_become_version_3(tmp_path):
    """M-14."""
    from builders.artifact_bytes import (
        legacy_bytes,
        save,
        small_legacy_payload,
        small_legacy_root,
    )

    root = small_legacy_root()
    root["identity"]["model_id"] = "someone-elses-model"
    path = save(tmp_path / "x.ninfer", legacy_bytes(2, root, small_legacy_payload()))
    message = refuse(path, tmp_path / "new.ninfer", code=1)
    assert "someone-elses-model/groupwise-int" in message


def test_parts_of_the_input_are_never_replaced_or_removed(tmp_path):
    """M-11: neither as old parts of OUT nor under the names of new parts."""
    old = save_legacy(tmp_path / "old.ninfer", "3.8 int")
    split = ("--max-file-bytes", "5000000000")
    migrate(old, tmp_path / "out.ninfer", *split)
    (tmp_path / "out.ninfer").rename(tmp_path / "in.ninfer")
    before = sorted(p.name for p in tmp_path.iterdir())
    refuse(tmp_path / "in.ninfer", tmp_path / "out.ninfer", *split, "--force", code=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    # A copy of the entry owns the same parts: replacing it must not take them away.
    twin = tmp_path / "twin.ninfer"
    os.link(tmp_path / "in.ninfer", twin)
    refuse(tmp_path / "in.ninfer", twin, "--force", code=2)
    assert open_artifact(tmp_path / "in.ninfer").payload.read(6 * 10**9, 10).size == 10


@pytest.mark.parametrize("options", [["--max-file-bytes", "9000000"], ["--artifact-id", "random"]])
def test_option_without_meaning_for_the_version_is_refused(tmp_path, options):
    old = save_legacy(tmp_path / "old.ninfer", "3.8 int")
    refuse(old, tmp_path / "new.ninfer", "--to", "2", *options, code=2)


@pytest.mark.parametrize("name", ["", "folder/", "x" * 300])
def test_dry_run_refuses_an_output_that_cannot_be_written(tmp_path, name):
    """M-13."""
    old = save_legacy(tmp_path / "old.ninfer", "3.8 int")
    output = f"{tmp_path}/{name}" if name else ""
    refuse(old, output, "--dry-run", code=2)


def test_pipe_at_the_output_is_not_replaced(tmp_path):
    """M-11."""
    old = save_legacy(tmp_path / "old.ninfer", "3.8 int")
    os.mkfifo(tmp_path / "pipe")
    refuse(old, tmp_path / "pipe", "--force", code=2)
    refuse(old, tmp_path / "new.ninfer", "--chat-template", tmp_path / "pipe", code=2)
