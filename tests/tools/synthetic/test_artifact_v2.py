"""Version 2: the registered contracts at full size, planned and read but never written."""

from __future__ import annotations

import pytest

from ninfer_formats.errors import UsageError
from ninfer_formats.inventories.published import LEGACY_RESOURCE_BYTES
from ninfer_formats.layouts.geometry import align_up
from ninfer_formats.reader import Artifact
from ninfer_tools.migrate.draft import Stored, draft_artifact
from ninfer_tools.migrate.emission import emit_v2
from ninfer_tools.synthetic.artifact import open_synthetic

# Specification -> (weights_id, objects, bytes of the published file, its payload start).
REGISTERED = {
    "qwen3.8-27b:groupwise-int": ("groupwise-int", 1124, 18_210_531_328, 176_128),
    "qwen3.8-27b:groupwise-int:dflash2=1": ("groupwise-int", 1190, 20_437_336_576, 188_416),
    "qwen3.8-27b:nvfp4-official": ("nvfp4", 1124, 21_492_695_040, 180_224),
    "qwen3.8-27b:nvfp4-official:dflash2=1": ("nvfp4", 1190, 23_719_496_192, 188_416),
    "qwen3.6-27b:groupwise-int": ("groupwise-int", 1124, 17_495_365_888, 176_128),
    "qwen3.6-27b:nvfp4-official": ("nvfp4", 1307, 18_324_064_000, 208_896),
    "qwen3.6-35b-a3b:groupwise-int:dflash=1": ("groupwise-int", 940, 22_783_246_080, 151_552),
}
NVFP4 = "qwen3.8-27b:nvfp4-official"


@pytest.mark.parametrize("text", REGISTERED)
def test_version_2_directory_is_the_registered_one(text):
    weights_id, objects, published_bytes, published_start = REGISTERED[text]
    artifact = open_synthetic(text, container=2)
    model_id = text.partition(":")[0]
    assert artifact.version == 2 and str(artifact.identity) == f"{model_id}/{weights_id}"
    assert len(artifact.objects) == objects
    assert artifact.legacy is not None and artifact.legacy.match is not None
    assert artifact.legacy.match.missing == () and artifact.legacy.match.extra == ()
    # Only the six resources have other sizes than the published ones.
    ours = sum(item.bytes for item in artifact.resources.values())
    theirs = LEGACY_RESOURCE_BYTES[model_id.partition("-")[0]]
    span = published_bytes - published_start - align_up(theirs, 256) + align_up(ours, 256)
    assert artifact.payload.bytes == span


def test_model_without_its_drafter_is_registered_too():
    assert len(open_synthetic("qwen3.6-35b-a3b:groupwise-int", container=2).objects) == 889


@pytest.fixture(scope="module")
def versions() -> tuple[Artifact, Artifact]:
    return open_synthetic(NVFP4, 2), open_synthetic(NVFP4, 3)


@pytest.mark.parametrize(
    "name",
    [
        "text/layers/0/input_norm",
        "text/layers/1/gdn/a_log",
        "text/layers/3/attention/query_norm",
        "text/layers/2/gdn/b_projection",
        "proposal/token_ids",
        "mtp/layers/0/post_attention_norm",
        "vision/layers/4/attention/value_bias",
        "vision/layers/4/attention/key",
    ],
)
def test_versions_2_and_3_hold_the_same_weights(versions, name):
    old, new = versions
    first, second = old.parameter(name).decode(), new.parameter(name).decode()
    assert first.shape == second.shape and (first == second).all()


def test_versions_2_and_3_hold_the_same_resources_and_divisors(versions):
    old, new = versions
    for role in ("tokenizer.json", "chat_template.jinja", "preprocessor_config.json"):
        assert old.resource(role) == new.resource(role)
    name = "text/layers/0/mlp/gate_up_projection/input_scale_divisor"
    wanted = old.payload_of(name).tobytes()
    found = [
        new.payload_of(use.auxiliaries["activation_input_divisor"].parts[0].object).tobytes()
        for use in new.uses
        if use.parameter in ("text/layers/0/mlp/gate", "text/layers/0/mlp/up")
    ]
    assert found == [wanted, wanted]


@pytest.mark.parametrize(
    "text", ["qwen3.8-27b:nvfp4-official:dflash2=1", "qwen3.6-35b-a3b:groupwise-int:dflash=1"]
)
def test_migrated_version_3_is_the_version_2_of_the_same_specification(text):
    old, new = (open_synthetic(text, container) for container in (2, 3))
    emission = emit_v2(draft_artifact(new), "x.ninfer", None)
    assert emission.identity == old.identity
    assert dict(emission.plan.objects) == dict(old.objects)
    for item in old.objects.values():
        content = emission.contents[item.id]
        if item.bytes <= 1 << 12:
            if isinstance(content, Stored):
                content = content.artifact.raw_payload(content.object_id).tobytes()
            assert content == old.raw_payload(item.id).tobytes()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("qwen3.8-27b:nvfp4", "was never registered"),
        ("qwen3.5-27b:groupwise-int", "was never registered"),
        ("qwen3.8-27b:groupwise-int:layers=8", "it has all 64 layers"),
        ("qwen3.8-27b:groupwise-int:vocab=600", "it has 248077 token ids"),
        ("qwen3.8-27b:groupwise-int:proposal=0", "it has 131072 proposal rows"),
        ("qwen3.8-27b:groupwise-int:components=text+mtp", "it has vision"),
        ("qwen3.6-27b:groupwise-int:dflash=1", "it has no dflash"),
    ],
)
def test_models_without_a_contract_are_refused_with_what_exists(text, reason):
    with pytest.raises(UsageError, match=reason) as caught:
        open_synthetic(text, container=2)
    assert "qwen3.8-27b:nvfp4-official" in str(caught.value.want)
