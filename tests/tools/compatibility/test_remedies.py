"""Commands in messages can be pasted, whatever the file is called."""

from __future__ import annotations

import shlex
from pathlib import Path

from ninfer_tools.compatibility.remedies import migrate_command


def test_name_that_begins_with_a_dash_is_no_option():
    words = shlex.split(migrate_command(Path("-d.ninfer"), 3))
    assert words[2:4] == ["./-d.ninfer", "./-d-v3.ninfer"]


def test_name_with_spaces_and_quotes_is_one_word():
    words = shlex.split(migrate_command(Path("a b'$x.ninfer"), 2, ("dflash2",)))
    assert words[2] == "a b'$x.ninfer"
    assert words[-2:] == ["--drop", "dflash2"]
