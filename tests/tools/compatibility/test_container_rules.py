"""Container versions against engines: specs/other-engines.md, section 2."""

import shlex

import pytest
from typer.testing import CliRunner

from builders.edited_artifacts import drop_objects
from ninfer_tools.cli import app

PINNED_MTP = (
    "hf download neroued/Qwen3.8-27B-NInfer qwen3_8_27b.ninfer "
    "--revision 3526913004b1cf552cb57b88d6a5c6f5e4a89a70"
)
PINNED_DFLASH2 = PINNED_MTP.split(" --")[0] + " --revision dc370fb6295ae8b786e1af4f90d7142a16255c35"


def test_version_3_goes_to_version_2_whole_where_dflash2_is_known(judge_v3, tmp_path):
    """E-4, E-5, E-7."""
    verdict = judge_v3("upstream-v2-dflash2")
    assert not verdict.compatible
    assert verdict.reasons == (
        "the file is container version 3 (20437520896 bytes); upstream-v2-dflash2 reads version 2 "
        'only (it says: "artifact magic is not NInfer v2")',
    )
    command = f"ninfer migrate {tmp_path}/new.ninfer {tmp_path}/new-v2.ninfer --to 2"
    assert verdict.remedies == (command, PINNED_DFLASH2)


def test_version_3_goes_to_version_2_without_dflash2_where_it_is_not(judge_v3, tmp_path):
    """E-5: the drafter the engine lacks is dropped on the way."""
    verdict = judge_v3("upstream-v2")
    paths = f"{tmp_path}/new.ninfer {tmp_path}/new-v2-no-dflash2.ninfer"
    assert verdict.remedies == (f"ninfer migrate {paths} --to 2 --drop dflash2", PINNED_MTP)
    assert any("--dry-run" in text for text in verdict.notices)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"components": ("text", "mtp", "dflash2")}, "component vision is missing"),
        ({"rows": 65536}, "indexed with 131072 rows"),
        ({"rows": None}, "indexed with 131072 rows"),
        ({"profile": "bf16"}, "in version 2, stored is bf16"),
        ({"layers": 8}, "no version 2 contract holds this model"),
    ],
)
def test_no_migration_is_offered_where_no_contract_holds_the_file(judge_v3, options, why):
    """E-1, E-5: the reason why is given instead."""
    verdict = judge_v3("upstream-v2-dflash2", **options)
    assert not any(command.startswith("ninfer migrate") for command in verdict.remedies)
    assert any("no version 2 contract holds this" in t and why in t for t in verdict.notices)


@pytest.mark.parametrize("version", [1, 2])
def test_older_versions_go_to_version_3(judge_legacy, tmp_path, version):
    """E-4, E-6."""
    verdict = judge_legacy("upstream-v3", "qwen3.6-27b", version=version)
    said = {1: "expected NInfer v3 entry magic", 2: "NInfer v2 artifact is not supported"}
    assert said[version] in verdict.reasons[0]
    assert f"container version {version}" in verdict.reasons[0]
    assert verdict.remedies == (
        f"ninfer migrate {tmp_path}/old.ninfer {tmp_path}/old-v3.ninfer --to 3",
        "hf download neroued/Qwen3.6-27B-NInfer qwen3_6_27b.ninfer --revision main",
    )


def test_version_1_goes_to_version_2(judge_legacy, tmp_path):
    """E-6: the original migration takes this directory too, it is the published one."""
    verdict = judge_legacy("upstream-v2", "qwen3.6-27b", version=1)
    assert not verdict.compatible
    assert verdict.remedies[0] == (
        f"ninfer migrate {tmp_path}/old.ninfer {tmp_path}/old-v2.ninfer --to 2"
    )
    assert verdict.notices == ()


def test_strictness_of_the_original_version_1_migration_is_told(judge_legacy):
    """E-6: one byte fewer in a frontend file is another directory."""

    def edit(root):
        root["objects"][0]["bytes"] -= 1

    verdict = judge_legacy("upstream-v2", "qwen3.6-27b", version=1, edit=edit)
    assert any("two published version 1 files only" in text for text in verdict.notices)
    assert verdict.remedies[0].endswith("--to 2")


def test_nothing_goes_back_to_version_1(judge_legacy):
    """E-4."""
    verdict = judge_legacy("upstream-v1", "qwen3.6-27b")
    assert verdict.remedies == ()
    assert any("nothing writes it any more" in text for text in verdict.notices)


def test_strictness_of_the_original_upgrade_tool_is_told(judge_legacy):
    """E-6: 889 objects are fewer than the tool takes for this identity."""
    verdict = judge_legacy("upstream-v3", "qwen3.6-35b-a3b")
    assert any("refuses 889 objects" in text for text in verdict.notices)
    assert verdict.remedies[0].endswith("--to 3")


def test_partial_drafter_is_dropped_on_the_way_to_version_3(judge_legacy):
    """E-6, E-10."""

    def edit(root):
        drop_objects(root, "dflash2/final_norm")

    verdict = judge_legacy("upstream-v3", groups=None, edit=edit)
    assert any("dflash2/final_norm" in text for text in verdict.reasons)
    assert verdict.remedies[0].endswith("-v3-no-dflash2.ninfer --to 3 --drop dflash2")


def test_broken_text_is_no_reason_to_migrate(judge_legacy):
    """E-1, E-6: the file would not load afterwards either."""

    def edit(root):
        drop_objects(root, "text/final_norm")

    verdict = judge_legacy("upstream-v3", edit=edit)
    assert any("would not load as version 3 either" in text for text in verdict.reasons)
    assert [command.split()[0] for command in verdict.remedies] == ["hf"]


def test_paths_are_quoted_for_the_shell(tmp_path):
    """E-1."""
    from ninfer_tools.compatibility.remedies import migrate_command

    command = migrate_command(tmp_path / "my model.ninfer", 3, ("dflash2",))
    assert f"'{tmp_path}/my model.ninfer'" in command
    assert command.endswith("-v3-no-dflash2.ninfer' --to 3 --drop dflash2")


def test_file_over_the_original_limit_is_noted(judge_v3):
    def edit(root):
        root["files"][0]["payload_bytes"] = 33_000_000_000

    verdict = judge_v3("upstream-v3", edit)
    assert verdict.compatible
    assert any("splits it" in text for text in verdict.notices)


def _carry_out(verdict):
    command = shlex.split(verdict.remedies[0])
    assert command[:2] == ["ninfer", "migrate"]
    return CliRunner().invoke(app, [*command[1:], "--dry-run"])


@pytest.mark.parametrize(
    ("engine", "options"),
    [
        ("upstream-v3", {"version": 1}),
        ("upstream-v3", {"weights_id": "nvfp4", "form": "w8-nvfp4", "model_id": "qwen3.8-27b"}),
        ("upstream-v2", {"version": 1}),
        ("upstream-v2", {"model_id": "qwen3.8-27b", "groups": None}),
    ],
)
def test_offered_migrations_of_old_files_are_possible(judge_legacy, engine, options):
    """E-1."""
    result = _carry_out(judge_legacy(engine, **{"model_id": "qwen3.6-27b", **options}))
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("engine", ["upstream-v2", "upstream-v2-dflash2"])
@pytest.mark.parametrize("profile", ["groupwise-int", "nvfp4-official"])
def test_offered_migrations_to_version_2_are_possible(judge_v3, engine, profile):
    """E-1."""
    result = _carry_out(judge_v3(engine, profile=profile))
    assert result.exit_code == 0, result.output
