"""The table of engines and the shape of a verdict: specs/other-engines.md, section 1."""

import pytest

from builders.edited_artifacts import save_legacy
from ninfer_formats.directory import Identity
from ninfer_formats.errors import UsageError
from ninfer_formats.reader import open_artifact
from ninfer_tools.compatibility.contracts import find_identity, search_contract
from ninfer_tools.compatibility.engines import ENGINE_NAMES, judge, judge_all
from ninfer_tools.compatibility.verdict import notice, refuse, sum_up, way_out

IDENTITIES = [
    ("qwen3.6-27b", "groupwise-int"),
    ("qwen3.6-27b", "nvfp4"),
    ("qwen3.6-35b-a3b", "groupwise-int"),
    ("qwen3.8-27b", "groupwise-int"),
    ("qwen3.8-27b", "nvfp4"),
]


def test_reasons_alone_decide():
    """E-1."""
    assert sum_up("x", [notice("n")]).compatible
    assert not sum_up("x", [notice("n"), refuse("r")]).compatible


def test_remedies_stand_beside_reasons_only():
    """E-1."""
    assert sum_up("x", [way_out("c")]).remedies == ()
    assert sum_up("x", [way_out("c"), refuse("r"), way_out("c")]).remedies == ("c",)


def test_unknown_engine_is_bad_usage_and_lists_the_known(tmp_path):
    artifact = open_artifact(save_legacy(tmp_path / "m.ninfer", "qwen3.8-27b"))
    with pytest.raises(UsageError) as caught:
        judge(artifact, "upstream-v9")
    assert all(name in str(caught.value) for name in (*ENGINE_NAMES, "all"))


def test_every_engine_has_a_verdict(tmp_path):
    artifact = open_artifact(save_legacy(tmp_path / "m.ninfer", "qwen3.8-27b"))
    verdicts = judge_all(artifact)
    assert [item.engine for item in verdicts] == list(ENGINE_NAMES)
    assert [item.compatible for item in verdicts] == [False, True, True, False, True]
    assert all(item.compatible == (not item.reasons) for item in verdicts)


@pytest.mark.parametrize("identity", IDENTITIES)
def test_registered_files_fill_their_own_contract(tmp_path, identity):
    """E-5."""
    artifact = open_artifact(save_legacy(tmp_path / "m.ninfer", *identity))
    assert search_contract(artifact).identity == Identity(*identity)
    assert find_identity(artifact) == Identity(*identity)
    assert judge(artifact, "this").compatible


def test_contract_is_asked_without_the_dropped_groups(tmp_path):
    """E-5: nothing to drop is the caller's mistake and becomes the reason."""
    artifact = open_artifact(save_legacy(tmp_path / "m.ninfer", "qwen3.8-27b", groups=None))
    found = search_contract(artifact, ("dflash2",)).identity
    assert found == Identity("qwen3.8-27b", "groupwise-int")
    missing = search_contract(artifact, ("vision",))
    assert missing.identity is None
    assert "component vision is missing" in missing.reasons
