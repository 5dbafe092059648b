"""Published artifacts: lookups, and agreement with the inventories."""

import re

import pytest

from ninfer_formats.directory import Identity
from ninfer_formats.inventories.published import (
    PINNED_RESOURCES,
    PUBLISHED,
    V1_DIRECTORIES,
    pinned_resources,
    published_v1,
    published_versions,
    same_size_as,
)
from ninfer_formats.inventories.registered import registered_inventory


def test_size_alone_can_name_two_versions():
    """INV-35."""
    found = same_size_as(17_495_365_888)
    assert [artifact.version for artifact in found] == [1, 2]
    assert same_size_as(17_495_365_888, 2)[0].sha256 == (
        "7b51600ffd10632b9660f56085efdd9b751d79733ad32036a652234b64bebe7b"
    )


def test_size_and_identity_narrow_the_match():
    """INV-35."""
    assert len(same_size_as(18_210_531_328, 2, "qwen3.8-27b", "groupwise-int")) == 1
    assert same_size_as(18_210_531_328, 2, "qwen3.8-27b", "nvfp4") == ()
    assert same_size_as(18_210_531_327) == ()


def test_version_1_is_also_known_by_its_directory():
    """INV-35."""
    for digest, model_id in V1_DIRECTORIES.items():
        found = published_v1(digest)
        assert found is not None and (found.version, found.model_id) == (1, model_id)
    assert published_v1("0" * 64) is None


def test_sizes_but_one_pair_are_distinct_within_a_version():
    """INV-35: size and version name one artifact."""
    keys = [(artifact.version, artifact.bytes) for artifact in PUBLISHED]
    assert len(set(keys)) == len(keys) == 15


@pytest.mark.parametrize("artifact", [a for a in PUBLISHED if a.version < 3])
def test_object_counts_follow_from_the_inventory(artifact):
    """INV-35."""
    inventory = registered_inventory(artifact.model_id, artifact.weights_id)
    groups = [g for g in inventory.groups if g != "dflash2" or artifact.drafter]
    assert sum(len(inventory.groups[group]) for group in groups) == artifact.objects


def test_download_command_pins_the_revision():
    """INV-35."""
    artifact = same_size_as(18_210_531_328)[0]
    assert artifact.download_command == (
        "hf download neroued/Qwen3.8-27B-NInfer qwen3_8_27b.ninfer "
        "--revision 3526913004b1cf552cb57b88d6a5c6f5e4a89a70"
    )


def test_versions_of_an_identity_come_oldest_first():
    """INV-35."""
    identity = Identity("qwen3.8-27b", "groupwise-int")
    found = published_versions(identity)
    assert [artifact.version for artifact in found] == [2, 2, 3, 3]
    assert len(published_versions(identity, 3)) == 2


def test_pinned_resources_are_six_digests_per_release():
    """INV-36."""
    for release in PINNED_RESOURCES.values():
        assert len(release) == 6
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in release.values())
    assert pinned_resources("qwen3.8-27b") is PINNED_RESOURCES["qwen3.8"]
    assert pinned_resources("qwen3.6-35b-a3b") is PINNED_RESOURCES["qwen3.6"]
    assert pinned_resources("qwen3.5-9b") is None
