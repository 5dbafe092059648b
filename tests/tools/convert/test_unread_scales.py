"""FP8 scales that a dry run from headers cannot know."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from builders.checkpoints import build_checkpoint
from builders.stored_forms import Stored
from ninfer_tools.convert.plan import plan_conversion
from ninfer_tools.convert.request import OpenedSource, Request, SnapshotFiles
from ninfer_tools.convert.sources.checkpoint import open_checkpoint


def open_remotely(folder):
    """Open a folder as a snapshot of the hub, from which only ranges are read."""
    sizes = {p.name: SimpleNamespace(bytes=p.stat().st_size) for p in folder.iterdir()}
    snapshot = SimpleNamespace(
        pinned="someone/Tiny@0", files=sizes, file=sizes.__getitem__,
        read_range=lambda name, begin, end: (folder / name).read_bytes()[begin:end],
    )  # fmt: skip
    return OpenedSource(open_checkpoint(SnapshotFiles(snapshot)), "Tiny")


def plan(opened, tmp_path):
    asked = Request({}, tmp_path / "a.ninfer", profile="groupwise-int")
    return plan_conversion(asked, {"base": opened}, weights=False)[1]


def test_dry_run_says_that_scales_were_not_read(tmp_path):
    """V-148: from the hub the plan re-encodes; with the weights at hand it imports, silently."""
    tiny = build_checkpoint(form="ct_row")
    for name in [n for n in tiny.tensors if n.endswith("weight_scale")]:
        words = tiny.tensors[name].words.astype(np.uint32) << 16
        tiny.tensors[name] = Stored("F32", words.view(np.float32))
    folder = tiny.write(tmp_path / "m")
    remote = plan(open_remotely(folder), tmp_path)
    (notice,) = [n for n in remote.notices if "scales" in n]
    assert "FP8 parameters have float32 or float16 scales, which were not read" in notice
    local = plan(OpenedSource(open_checkpoint(folder), "m"), tmp_path)
    assert not [n for n in local.notices if "scales" in n]
    imported = [name for name, item in local.assigned.items() if item.method == "import"]
    assert int(notice.split()[0]) == len(imported)
    assert not [item for item in remote.assigned.values() if item.method == "import"]
