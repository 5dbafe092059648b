"""Conversion straight to container version 2: the registered inventories at full size, and the
whole way at small size."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from builders.checkpoints import build_checkpoint, build_drafter, tiny_geometry
from builders.conversions import convert, read_report
from builders.header_checkpoints import open_base, open_drafter, sized_frontend
from builders.stored_forms import Stored
from builders.tiny_contracts import ROWS, build_official_source, shrink_contracts
from ninfer_formats import numeric_formats as nf
from ninfer_formats.directory import Identity
from ninfer_formats.directory_json import legacy_directory_json
from ninfer_formats.errors import UsageError
from ninfer_formats.inventories.family import family_geometry
from ninfer_formats.inventories.profiles import build_mixed_nvfp4
from ninfer_formats.inventories.published import PUBLISHED
from ninfer_formats.inventories.registered import registered_inventory
from ninfer_formats.reader import open_artifact
from ninfer_formats.strict_json import write_json
from ninfer_formats.write_plan import make_resource, make_tensor, place_objects
from ninfer_tools.convert.calibration.record import Calibration
from ninfer_tools.convert.memory_need import peak_memory
from ninfer_tools.convert.plan import plan_conversion
from ninfer_tools.convert.request import OpenedSource, Request
from ninfer_tools.convert.sources.checkpoint import open_checkpoint
from ninfer_tools.migrate import command as migrate

frontend = cache(sized_frontend)
ROOT = Path(__file__).parents[3]
# Kills its own process after nine finished objects, each journalled at once.
KILLED = """
import os, signal, sys
sys.path[:0] = [{root!r} + "/tests", {root!r}]
from pathlib import Path
from builders.conversions import convert
from builders.stored_forms import Stored
from builders.tiny_contracts import shrink_contracts
from ninfer_tools.convert import execution
shrink_contracts()
execution.SYNC_BYTES = 0
finish, count = execution._Run._finish, [0]
def finish_or_die(self, parent, record):
    finish(self, parent, record)
    count[0] += 1
    if count[0] == 9:
        os.kill(os.getpid(), signal.SIGKILL)
execution._Run._finish = finish_or_die
convert(Path({folder!r}), Path({out!r}), **{options!r})
"""


def plan(name, profile="groupwise-int", drafter=False, form=lambda tensor: None, **changes):
    """Plan a full-size conversion of a checkpoint called `name`, headers only."""
    geometry = changes.pop("geometry", None) or family_geometry(name.lower())
    sources = {"base": open_base(geometry, name, frontend(name[:7].lower()), form)}
    if drafter:
        sources[geometry.drafter.kind] = open_drafter(geometry)
    asked = Request({}, Path("a.ninfer"), profile=profile, container=2, **changes)
    return plan_conversion(asked, sources, weights=False)


def store_official(tensor):
    """The published quantisation of qwen3.8-27b: FP8 mixers and head, NVFP4 feed-forwards."""
    if tensor.residency != "text" or not tensor.site or "_projection" in tensor.role:
        return None
    if tensor.role.startswith("mlp/") and tensor.layer < 56:
        return nf.NVFP4
    return nf.FP8


def store_mixed(tensor, profile=build_mixed_nvfp4()):  # noqa: B008
    """The published quantisation of qwen3.6-27b: NVFP4 but for some sensitive projections."""
    found = profile.format_of(tensor.residency, tensor.role, tensor.layer, tensor.format)
    return found if tensor.site and found == nf.NVFP4 else None


@pytest.mark.parametrize(
    ("name", "profile", "drafter", "form"),
    [
        ("Qwen3.6-27B", "groupwise-int", False, None),
        ("Qwen3.8-27B", "groupwise-int", False, None),
        ("Qwen3.8-27B", "groupwise-int", True, None),
        ("Qwen3.6-35B-A3B", "groupwise-int", True, None),
        ("Qwen3.6-27B", "nvfp4", False, store_mixed),
        ("Qwen3.8-27B", "nvfp4", True, store_official),
    ],
)
def test_full_size_directory_is_the_registered_one(name, profile, drafter, form):
    """V-140: names, order, shapes, formats, offsets and JSON, byte for byte; and the size of the
    published file."""
    options = {} if form is None else {"form": form}
    found, made = plan(name, profile, drafter, **options)
    assert made is not None, [str(problem) for problem in found.problems]
    inventory = registered_inventory(name.lower(), profile)
    groups = [g for g in inventory.groups if drafter or not g.startswith("dflash")]
    sizes = [len(data) for data in frontend(name[:7].lower()).values()]
    resources = map(make_resource, inventory.resources, sizes)
    tensors = [make_tensor(t.name, t.shape, t.format) for t in inventory.select(groups)]
    objects = place_objects([*resources, *tensors])
    json_bytes = write_json(legacy_directory_json(Identity(name.lower(), profile), objects))
    header = made.written.files[0].header
    assert header[:16] == b"NINFER\0\2" + len(json_bytes).to_bytes(8, "little")
    assert header[16:] == json_bytes
    published = {
        item.bytes
        for item in PUBLISHED
        if (item.version, item.model_id, item.weights_id) == (2, name.lower(), profile)
        and bool(item.drafter) == drafter
    }
    assert published == {made.written.bytes}
    # V-147: embeddings of 2.5 GB and experts of 1 GB are read by blocks of rows.
    assert peak_memory(made) < 700 << 20


@pytest.fixture
def contracts(monkeypatch):
    shrink_contracts(monkeypatch.setattr)


def refuse(tiny, folder, capsys, sources=(), **options):
    """Return the lines with which a conversion to version 2 is refused, nothing written."""
    options = {"profile": "groupwise-int", "proposal_rows": ROWS, **options}
    companions = [f"{key}={item.write(folder / key)}" for key, item in sources]
    out = folder / "o" / "a.ninfer"
    out.parent.mkdir()
    source = tiny.write(folder / "Qwen3.8-27B")
    assert convert(source, out, container=2, sources=companions, **options) == 1
    assert not any(out.parent.iterdir())
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"profile": "fp8"}, "--profile groupwise-int or nvfp4"),
        ({"profile": "nvfp4"}, "4 activation divisors that the sources lack"),
        ({"components": "text,mtp"}, "has the component vision, this has not; add vision"),
        ({"proposal_rows": 40}, "(got 40 rows, want 64 rows); --proposal-rows 64"),
        ({"no_proposal": True, "proposal_rows": None}, "(got 0 rows, want 64 rows)"),
    ],
)
def test_refusal_names_what_differs_and_the_next_command(
    tmp_path, contracts, capsys, options, reason
):
    """V-141: before any weight is read."""
    lines = refuse(build_checkpoint(), tmp_path, capsys, **options)
    assert any(reason in line for line in lines), lines
    assert len(lines) <= 12


def test_other_model_is_refused_by_the_sizes_that_differ(tmp_path, capsys):
    """V-141."""
    (line,) = refuse(build_checkpoint(), tmp_path, capsys)
    assert "exists for qwen3.6-27b, qwen3.6-35b-a3b, qwen3.8-27b only" in line
    assert "hidden_size 128 (want 5120)" in line and "version 3 holds every model" in line


def test_one_parameter_in_another_format_is_named(tmp_path, contracts, capsys):
    """V-141."""
    rules = ["text/layers/1/mlp/down=q6"]
    (line,) = refuse(build_checkpoint(), tmp_path, capsys, rules=rules)
    assert line.startswith("text/layers/1/mlp/down: qwen3.8-27b/groupwise-int stores it in another")
    assert f"(got {nf.Q6}, want {nf.Q5}); leave the rule out ({rules[0]})" in line


def test_other_vision_tower_is_refused(tmp_path, contracts, capsys):
    """V-141: version 2 says nothing of it, engines take the registered one."""
    tiny = build_checkpoint()
    tiny.config["vision_config"]["num_heads"] = 4
    (line,) = refuse(tiny, tmp_path, capsys)
    assert "another vision: num_heads 4 (want 2)" in line


def test_other_drafter_is_refused(tmp_path, contracts, capsys):
    """V-141."""
    geometry = tiny_geometry(drafter=True)
    drafter = build_drafter(geometry)
    drafter.config["dflash_config"]["target_layer_ids"] = [1, 0]
    tiny = build_checkpoint(geometry)
    (line,) = refuse(tiny, tmp_path, capsys, [("dflash2", drafter)])
    assert "another dflash2: target_layer_ids (1, 0) (want (0, 1)); leave dflash2 out" in line


def test_drafter_that_was_never_registered_is_refused(tmp_path, contracts, capsys):
    """V-141: nobody published a drafter in version 2 for the model that Q6 ends belong to."""
    geometry = tiny_geometry(drafter=True)
    rules = ["text/token_embedding=q6", "text/output_head=q6"]
    tiny, drafter = build_checkpoint(geometry), build_drafter(geometry)
    lines = refuse(tiny, tmp_path, capsys, [("dflash2", drafter)], rules=rules)
    assert any(
        "qwen3.6-27b/groupwise-int has no place for the component dflash2" in x for x in lines
    )
    assert any("--components text,mtp,vision,proposal" in x for x in lines)


def test_parts_are_refused(tmp_path):
    """V-143."""
    with pytest.raises(UsageError, match="always one file"):
        convert(tmp_path, tmp_path / "a.ninfer", container=2, max_file_bytes=300_000)


def migrated(folder, out, **options):
    """Convert to version 3 and migrate; return the version 2 bytes."""
    third, second = out.with_name("third.ninfer"), out.with_name("second.ninfer")
    assert convert(folder, third, **options) == 0
    migrate.run(
        source=third, output=str(second), to=2, chat_template=None, drop=[], add=[],
        max_file_bytes=32_000_000_000, artifact_id="derived", identity=None, dry_run=False,
        force=False, max_directory_bytes=1 << 26, json_output=True,
    )  # fmt: skip
    return second.read_bytes()


OFFICIAL = [
    *(f"text/layers/*/attention/{n}=fp8" for n in ("query", "key", "gate", "value", "output")),
    *(f"text/layers/*/gdn/{n}=fp8" for n in ("query", "key", "value", "z", "output")),
    "text/token_embedding=fp8",
    "text/output_head=fp8",
]


@pytest.mark.parametrize(
    ("name", "tiny", "profile", "rules"),
    [
        ("Qwen3.6-27B", build_checkpoint, "groupwise-int", []),
        ("Qwen3.8-27B", build_checkpoint, "groupwise-int", []),
        ("Qwen3.6-35B-A3B", lambda: build_checkpoint(moe=True), "groupwise-int", []),
        ("Qwen3.8-27B", build_official_source, "nvfp4", OFFICIAL),
    ],
)
def test_one_step_gives_the_bytes_of_conversion_and_migration(
    tmp_path, contracts, name, tiny, profile, rules
):
    """V-6 and V-142; `rules` spell out in version 3 what the registered nvfp4 means."""
    folder, out = tiny().write(tmp_path / name, 2), tmp_path / "a.ninfer"
    assert convert(folder, out, profile=profile, container=2, proposal_rows=ROWS) == 0
    assert out.read_bytes() == migrated(
        folder, out, profile=profile, rules=rules, proposal_rows=ROWS
    )
    artifact = open_artifact(out)
    assert artifact.version == 2 and not artifact.find_problems()
    report = read_report(out)
    assert (report["container"], report["identity"]) == (2, f"{name.lower()}/{profile}")
    assert report["objects"][0]["id"] == "text/token_embedding"


def test_calibrated_divisors_fill_the_registered_nvfp4(tmp_path, contracts):
    """V-140: an unquantised checkpoint lacks only the divisors; gate and up get the same one."""
    folder = build_checkpoint().write(tmp_path / "Qwen3.8-27B")
    asked = Request({}, tmp_path / "a.ninfer", container=2, proposal_rows=ROWS)
    given = replace(asked, calibration=Calibration({}, {}, {}, {}, "0" * 64, assumed=True))
    opened = {"base": OpenedSource(open_checkpoint(folder), "Qwen3.8-27B")}
    assert plan_conversion(asked, opened, weights=True)[1] is None
    found, made = plan_conversion(given, opened, weights=True)
    assert made is not None, found.problems
    assert str(made.identity) == "qwen3.8-27b/nvfp4"
    methods = {
        parent.format: made.assigned[parent.ranges[0].parameter].method
        for parent in made.parents.values()
    }
    assert (methods[nf.NVFP4], methods[nf.FP8]) == ("search", "absmax")
    names = [name for name in made.literals if name.endswith("/input_scale_divisor")]
    assert len(names) == 4


def test_drafter_is_a_suffix(tmp_path, contracts):
    """V-142."""
    geometry = tiny_geometry(drafter=True)
    folder = build_checkpoint(geometry).write(tmp_path / "Qwen3.8-27B")
    sources = [f"dflash2={build_drafter(geometry).write(tmp_path / 'd')}"]
    options = {"profile": "groupwise-int", "proposal_rows": ROWS, "sources": sources}
    out = tmp_path / "a.ninfer"
    assert convert(folder, out, container=2, **options) == 0
    assert out.read_bytes() == migrated(folder, out, **options)


def test_matrix_whose_parts_were_packed_apart_is_encoded_as_one(tmp_path, contracts):
    """V-142: what a recipe separates in version 3, migration joins and conversion too."""
    recipe = tmp_path / "r.py"
    recipe.write_text(
        "def configure(model, recipe, sources):\n    recipe.separate('text/layers/*/mlp/up')\n"
    )
    folder = build_checkpoint().write(tmp_path / "Qwen3.8-27B")
    options = {"profile": "groupwise-int", "proposal_rows": ROWS, "recipe": str(recipe)}
    out = tmp_path / "a.ninfer"
    assert convert(folder, out, container=2, **options) == 0
    assert out.read_bytes() == migrated(folder, out, **options)


def test_unequal_divisors_are_refused_by_name(tmp_path, contracts, capsys):
    """V-141: gate and up share one matrix in version 2."""
    tiny = build_official_source()
    for name in [n for n in tiny.tensors if n.endswith("up_proj.weight_global_scale")]:
        tiny.tensors[name] = Stored("F32", tiny.tensors[name].words * 2)
    lines = refuse(tiny, tmp_path, capsys, profile="nvfp4")
    names = [f"text/layers/{i}/mlp/gate_up" for i in (0, 1)]
    assert [line.partition(":")[0] for line in lines] == names
    assert all("2 weight divisors" in line for line in lines)


def test_killed_conversion_goes_on_to_the_same_bytes(tmp_path, contracts):
    """V-142: nothing at the target meanwhile; --resume and --force work as for version 3."""
    folder, out = build_checkpoint().write(tmp_path / "Qwen3.8-27B"), tmp_path / "o" / "a.ninfer"
    out.parent.mkdir()
    options = {"container": 2, "profile": "groupwise-int", "proposal_rows": ROWS}
    program = KILLED.format(root=str(ROOT), folder=str(folder), out=str(out), options=options)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert [p.name for p in out.parent.iterdir()] == [".a.ninfer.ninfer-convert"]
    assert convert(folder, out, resume=True, **options) == 0
    again = tmp_path / "b.ninfer"
    assert convert(folder, again, **options) == 0
    assert out.read_bytes() == again.read_bytes()
    with pytest.raises(UsageError, match="exists"):
        convert(folder, out, **options)
    assert convert(folder, out, force=True, **options) == 0
    assert out.read_bytes() == again.read_bytes()


def test_work_for_version_3_is_not_resumed_by_version_2(tmp_path, contracts):
    """V-142 and V-53: a version 2 directory says nothing of its inputs, the plan does."""
    folder, out = build_checkpoint().write(tmp_path / "Qwen3.8-27B"), tmp_path / "a.ninfer"
    options = {"profile": "groupwise-int", "proposal_rows": ROWS}
    both = {**options, "container": 2}
    program = KILLED.format(root=str(ROOT), folder=str(folder), out=str(out), options=both)
    subprocess.run([sys.executable, "-c", program], check=False)
    with pytest.raises(UsageError, match="was another one"):
        convert(folder, out, resume=True, **options)
    build_checkpoint(seed=1).write(tmp_path / "Qwen3.8-27B")
    with pytest.raises(UsageError, match=r"was another one|changed"):
        convert(folder, out, resume=True, **both)
