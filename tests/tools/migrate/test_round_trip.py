"""Laws of migration between versions: `specs/migration.md`, M-1 to M-6."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from builders.sparse_files import REGISTERED, fingerprint, marker, save_legacy
from ninfer_formats.reader import open_artifact
from ninfer_tools.cli import app


def migrate(*arguments, code=0):
    result = CliRunner().invoke(app, ["migrate", *map(str, arguments), "--json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout.splitlines()[0])


@pytest.mark.parametrize("key", REGISTERED)
def test_version_2_comes_back_byte_identical_through_version_3(tmp_path, key):
    """M-1."""
    old = save_legacy(tmp_path / "old.ninfer", key)
    upgraded = migrate(old, tmp_path / "new.ninfer", "--to", 3)
    assert upgraded["bytes_copied_verbatim"] == sum(
        item.bytes for item in open_artifact(old).objects.values()
    )
    migrate(tmp_path / "new.ninfer", tmp_path / "back.ninfer", "--to", 2)
    assert fingerprint(tmp_path / "back.ninfer") == fingerprint(old)


# Parameters and uses that the original upgrade tool writes, per file.
COUNTS = {
    "3.8 int": (1422, 785),
    "3.8 int dflash2": (1513, 844),
    "3.8 nvfp4": (1422, 785),
    "3.8 nvfp4 dflash2": (1513, 844),
    "3.8 nvfp4 community": (1422, 785),
    "3.6 int": (1422, 785),
    "3.6 nvfp4": (1422, 785),
    "35b int": (32632, 32127),
    "35b int dflash": (32713, 32184),
}
# Directory bytes of the original upgrade tool's output for the same input.
JSON_BYTES = {
    "3.8 int": 384_992,
    "3.8 int dflash2": 413_664,
    "3.8 nvfp4": 413_664,
    "3.8 nvfp4 dflash2": 442_336,
}


@pytest.mark.parametrize("key", REGISTERED)
def test_upgraded_file_has_the_parameters_and_uses_of_the_original_tool(tmp_path, key):
    """M-2: same names, ids, offsets and bytes as the source, version 3 names on top."""
    old = open_artifact(save_legacy(tmp_path / "old.ninfer", key))
    migrate(old.path, tmp_path / "new.ninfer", "--to", 3)
    new = open_artifact(tmp_path / "new.ninfer")
    assert (len(new.bindings), len(new.uses)) == COUNTS[key]
    assert new.objects == old.objects
    assert dict(new.bindings.items()) == dict(old.bindings.items())
    assert new.uses == old.uses
    assert new.prefix.json_bytes == JSON_BYTES.get(key, new.prefix.json_bytes)
    assert new.metadata == {"name": old.identity.model_id}
    for name in list(new.objects)[:: len(new.objects) // 50]:
        assert bytes(new.raw_payload(name)[:4]) == marker(name)[:4]


def test_activation_divisor_becomes_an_auxiliary_of_every_use_of_its_projection(tmp_path):
    """M-2: 112 stored scalars, 168 uses."""
    save_legacy(tmp_path / "old.ninfer", "3.8 nvfp4")
    migrate(tmp_path / "old.ninfer", tmp_path / "new.ninfer")
    uses = [use for use in open_artifact(tmp_path / "new.ninfer").uses if use.auxiliaries]
    objects = {use.auxiliaries["activation_input_divisor"].parts[0].object for use in uses}
    assert (len(uses), len(objects)) == (168, 112)
    assert {use.activation_policy for use in uses} == {"AllowA4"}


@pytest.mark.parametrize("key", ["3.6 int", "35b int dflash"])
def test_version_1_becomes_version_2_and_3(tmp_path, key):
    """M-3: a version 1 identity means groupwise-int; the payload stays where it is."""
    old = save_legacy(tmp_path / "v1.ninfer", key, version=1)
    twin = save_legacy(tmp_path / "v2.ninfer", key, version=2)
    migrate(old, tmp_path / "new.ninfer", "--to", 2)
    assert fingerprint(tmp_path / "new.ninfer") == fingerprint(twin)
    migrate(old, tmp_path / "v3.ninfer", "--to", 3)
    migrate(tmp_path / "v3.ninfer", tmp_path / "back.ninfer", "--to", 2)
    assert fingerprint(tmp_path / "back.ninfer") == fingerprint(twin)


@pytest.mark.parametrize("version", [2, 3])
def test_current_version_gives_an_identical_file_and_says_so(tmp_path, version):
    """M-6."""
    source = save_legacy(tmp_path / "old.ninfer", "3.8 int")
    if version == 3:
        migrate(source, tmp_path / "v3.ninfer")
        source = tmp_path / "v3.ninfer"
    report = migrate(source, tmp_path / "copy.ninfer", "--to", version)
    assert report["unchanged"]
    assert fingerprint(tmp_path / "copy.ninfer") == fingerprint(source)


def test_same_migration_twice_gives_the_same_bytes(tmp_path):
    """M-5: the artifact id is derived from directory and content."""
    old = save_legacy(tmp_path / "old.ninfer", "3.8 int")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        migrate(old, tmp_path / name / "new.ninfer")
    assert fingerprint(tmp_path / "a/new.ninfer") == fingerprint(tmp_path / "b/new.ninfer")
    migrate(old, tmp_path / "random.ninfer", "--artifact-id", "random")
    ids = [open_artifact(p).prefix.artifact_id for p in tmp_path.glob("**/[nr]*.ninfer")]
    assert len(set(ids)) == 2


def test_other_weights_get_another_artifact_id(tmp_path):
    """M-5: two fine-tunes have equal directories; their parts must not fit each other."""
    ids = []
    for value in (1, 2):
        old = save_legacy(tmp_path / "old.ninfer", "3.8 int")
        artifact = open_artifact(old)
        with old.open("r+b") as file:
            for item in artifact.tensors():
                file.seek(artifact.prefix.payload_start + item.offset + item.bytes // 2)
                file.write(bytes([value]))
        migrate(old, tmp_path / f"{value}.ninfer")
        ids.append(open_artifact(tmp_path / f"{value}.ninfer").prefix.artifact_id)
    assert ids[0] != ids[1]


def test_split_file_joins_again(tmp_path):
    """M-4: parts of 4 GB and back."""
    old = save_legacy(tmp_path / "old.ninfer", "3.8 int")
    migrate(old, tmp_path / "one.ninfer")
    report = migrate(
        tmp_path / "one.ninfer", tmp_path / "many.ninfer", "--max-file-bytes", 4 * 10**9
    )
    assert len(report["files"]) == 5
    assert all(size <= 4 * 10**9 for size in report["files"].values())
    migrate(tmp_path / "many.ninfer", tmp_path / "back.ninfer", "--to", 2)
    assert fingerprint(tmp_path / "back.ninfer") == fingerprint(old)
