"""Names that are no text, and devices that do not encode."""

from __future__ import annotations

import os

import pytest

from builders.checkpoints import build_checkpoint
from builders.conversions import converted
from ninfer_formats.errors import UsageError
from ninfer_tools.convert import command


def run(folder, out, **options):
    lists = {"sources": [], "rules": [], "resources": []}
    return command.run(source=str(folder), out=str(out), **lists, **options)


@pytest.mark.parametrize("name", ["a\udcff", "a\nb", "\x7f", "\u2028", "x" * 201])
def test_name_that_is_no_plain_text_is_refused(tmp_path, name):
    """V-174."""
    with pytest.raises(UsageError, match="--name cannot be used"):
        run(tmp_path / "m", tmp_path / "a.ninfer", name=name)


def test_folder_whose_name_is_no_text_is_converted(tmp_path):
    """V-174: also with a recipe of such a name; the artifact has both escaped."""
    plain = build_checkpoint().write(tmp_path / "m")
    folder = tmp_path / os.fsdecode(b"m\xff")
    plain.rename(folder)
    recipe = tmp_path / os.fsdecode(b"r\xff.py")
    recipe.write_text("def configure(m, r, s):\n    pass\n")
    artifact = converted(folder, tmp_path / "a.ninfer", recipe=str(recipe), manifest=True)
    assert artifact.metadata["name"] == "m\\udcff"
    assert artifact.provenance["recipe"]["file"] == "r\\udcff.py"


def test_rule_that_is_no_text_is_refused(tmp_path):
    """V-174: the artifact records it."""
    with pytest.raises(UsageError, match="--set is not understood"):
        command.run(
            source=str(tmp_path / "m"), out=str(tmp_path / "a.ninfer"), sources=[], resources=[],
            rules=["text/*[!\udcff]=q4"],
        )  # fmt: skip


@pytest.mark.parametrize("name", ["meta", "mps", "cpu:0", "cuda:", "cuda:x", "", "CPU"])
@pytest.mark.parametrize("dry_run", [False, True])
def test_device_that_does_not_encode_is_refused(tmp_path, name, dry_run):
    """V-174."""
    with pytest.raises(UsageError, match="unknown device"):
        run(tmp_path / "m", tmp_path / "a.ninfer", device=name, dry_run=dry_run)
