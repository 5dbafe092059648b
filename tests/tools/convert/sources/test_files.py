"""Where checkpoints are read from: S-1 and S-2."""

from __future__ import annotations

import os

import numpy as np
import pytest

from builders.checkpoints import build_checkpoint
from ninfer_formats.errors import NinferError, UsageError
from ninfer_tools.convert.sources.checkpoint import open_checkpoint
from ninfer_tools.convert.sources.files import LocalFolder
from ninfer_tools.convert.sources.preflight import find_problems


class HeadersOnly:
    """The files of a folder as a source that never gives weights."""

    def __init__(self, folder):
        self._folder, self.bytes = LocalFolder(folder), 0
        self.label = "owner/name@abc"

    def names(self):
        return self._folder.names()

    def size(self, name):
        return self._folder.size(name)

    def path(self, name):
        return f"{self.label}/{name}"

    def read(self, name, begin, end):
        raw = self._folder.read(name, begin, end)
        self.bytes += len(raw)
        return raw

    def map(self, name):
        raise UsageError("only headers are at hand", path=self.path(name))


@pytest.mark.parametrize("form", [None, "ct_nvfp4", "modelopt_fp8", "hf_block"])
def test_headers_are_enough_to_plan(tmp_path, form):
    """S-1: sources, shapes and kinds are all there without one byte of weights."""
    folder = build_checkpoint(form=form).write(tmp_path)
    remote = HeadersOnly(folder)
    found = find_problems({"base": open_checkpoint(remote)}, read_scales=False)
    local = find_problems({"base": open_checkpoint(folder)})
    assert not found.problems and found.sources and local.sources
    kinds = {name: source.kind for name, source in found.sources.sources.items()}
    assert kinds == {name: source.kind for name, source in local.sources.sources.items()}
    weights = (folder / "model.safetensors").stat().st_size
    others = sum(f.stat().st_size for f in folder.iterdir()) - weights
    header = 8 + int.from_bytes((folder / "model.safetensors").read_bytes()[:8], "little")
    assert remote.bytes <= others + header + 64


def test_head_that_only_bytes_could_compare_is_taken_as_it_is(tmp_path):
    """S-1, S-65."""
    tiny = build_checkpoint(tied=True)
    tiny.tensors["lm_head.weight"] = tiny.tensors["model.language_model.embed_tokens.weight"]
    remote = open_checkpoint(HeadersOnly(tiny.write(tmp_path)))
    found = find_problems({"base": remote}, read_scales=False)
    assert found.geometry and not found.geometry.text.tie_word_embeddings
    assert "cannot be compared" in found.notices[0]


def test_values_need_more_than_headers(tmp_path):
    """S-1."""
    remote = open_checkpoint(HeadersOnly(build_checkpoint().write(tmp_path)))
    found = find_problems({"base": remote}, read_scales=False)
    assert found.sources
    with pytest.raises(UsageError, match="only headers"):
        found.sources.sources["text/final_norm"].read_values(0, 1)


def test_words_are_the_file_itself(save):
    """S-2: nothing is copied."""
    checkpoint = save(build_checkpoint())
    tensor = checkpoint.tensors["lm_head.weight"]
    words = checkpoint.words(tensor)
    assert np.shares_memory(words, checkpoint.files.map("model.safetensors"))
    assert words.dtype == np.uint16 and not words.flags.writeable


def test_folder_that_is_none_is_a_usage_error(tmp_path):
    """S-1."""
    with pytest.raises(UsageError, match="no such folder"):
        open_checkpoint(tmp_path / "absent")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file"):
        open_checkpoint(tmp_path / "file")


def test_file_that_shrank_is_refused_and_not_mapped(save):
    """S-2: pages past its end would kill the process."""
    checkpoint = save(build_checkpoint())
    os.truncate(checkpoint.files.path("model.safetensors"), 4096)
    with pytest.raises(NinferError, match="changed its size"):
        checkpoint.words(checkpoint.tensors["lm_head.weight"])


def test_folder_with_nothing_in_it_reports_both_absences(tmp_path):
    """S-3."""
    found = open_checkpoint(tmp_path)
    assert [p.what for p in found.problems] == ["no config.json", "no weights"]
