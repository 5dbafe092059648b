"""Laws of what the package carries: the trained files bit by bit, small enough to ship."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from ninfer_tools.demo.cache import ensure_unpacked
from ninfer_tools.demo.manifest import PACKED, read_manifest, read_metrics

ROOT = Path(__file__).parents[3]
SHARD = "checkpoint/model-{:05d}-of-00003.safetensors"
# SHA-256 of the files that training wrote.
TRAINED = {
    SHARD.format(1): "bbd63c28cfaaaa90411ce093c89867d13ed0cd73ee877c31564ab64e1681698d",
    SHARD.format(2): "79aa9fc0ac88d660d45e860edec9e67c5bf55525fa875823c4f330174b2334ac",
    SHARD.format(3): "8cf895949288e00e726fa3eec8ccc19dc98ef95091d3b8258f678ecd5ccca345",
    "checkpoint/tokenizer.json": "e8a7d57e5138a00be6fdbde32e8cf2617108fd75ed7a4564df08a4cf377c41ce",
    "checkpoint/config.json": "36aa33aafe8beb25294bc40dee14e66e7cfd4f8278f56a847c3c668209f28ffa",
    "dflash2/model.safetensors": "139c518ee278ff201a13b2802140ff00126c32447a71e9543d1ccdae238ec097",
    "dflash2/config.json": "772ba4182726c1b1809b64b727bd2471149149846fb813201cb2681a4bd5a603",
}
CHECKPOINT_FILES = {
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "merges.txt",
    "model-00001-of-00003.safetensors",
    "model-00002-of-00003.safetensors",
    "model-00003-of-00003.safetensors",
    "model.safetensors.index.json",
    "preprocessor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "video_preprocessor_config.json",
    "vocab.json",
}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    return ensure_unpacked(read_manifest(), tmp_path_factory.mktemp("cache"))


def read_header(path: Path) -> dict[str, dict]:
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    header.pop("__metadata__", None)
    return header


def test_bundle_holds_exactly_the_trained_files(unpacked):
    manifest = read_manifest()
    digests = {file.name: file.sha256 for file in manifest.files}
    assert {name: digests[name] for name in TRAINED} == TRAINED
    assert {file.name.partition("/")[2] for file in manifest.part("checkpoint")} == CHECKPOINT_FILES
    assert {path.name for path in (unpacked / "checkpoint").iterdir()} == CHECKPOINT_FILES
    assert {path.name for path in (unpacked / "dflash2").iterdir()} == {
        "config.json",
        "model.safetensors",
    }


def test_index_and_shards_agree_and_hold_the_stated_parameters(unpacked):
    folder = unpacked / "checkpoint"
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    found = {}
    count = 0
    for path in sorted(folder.glob("model-*.safetensors")):
        for name, tensor in read_header(path).items():
            found[name] = path.name
            size = 1
            for extent in tensor["shape"]:
                size *= extent
            count += size
    assert found == index
    assert count == read_metrics()["checkpoint"]["parameters"] == 16_184_776
    groups = {".".join(name.split(".")[:2]) for name in index}
    assert {"model.language_model", "model.visual", "mtp.fc", "lm_head.weight"} <= groups


def test_drafter_fits_the_checkpoint(unpacked):
    target = json.loads((unpacked / "checkpoint/config.json").read_text())["text_config"]
    drafter = json.loads((unpacked / "dflash2/config.json").read_text())
    assert drafter["architectures"] == ["DFlash2DraftModel"]
    assert drafter["hidden_size"] == target["hidden_size"]
    assert drafter["vocab_size"] == target["vocab_size"]
    assert drafter["num_target_layers"] == target["num_hidden_layers"]
    assert max(drafter["dflash_config"]["target_layer_ids"]) < target["num_hidden_layers"]


def test_stored_files_stay_small():
    sizes = {path: path.stat().st_size for path in PACKED.rglob("*") if path.is_file()}
    assert max(sizes.values()) < 20_000_000
    assert sum(sizes.values()) < 34_000_000
    evaluation = [size for path, size in sizes.items() if path.parent.name == "evaluation"]
    assert sum(evaluation) < 3_000_000


def test_every_bundled_file_belongs_to_the_distribution():
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    package = PACKED.parent
    shipped = {
        path
        for pattern in options["package-data"]["ninfer_tools.demo"]
        for path in package.glob(pattern)
    }
    assert shipped == {path for path in PACKED.rglob("*") if path.is_file()}
