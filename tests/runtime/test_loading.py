"""Laws of loading: every value arrives, in file order, and nothing else is read."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest
import torch

from builders.checkpoints import build_checkpoint
from builders.conversions import converted
from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs import nvfp4
from ninfer_formats.errors import UsageError
from ninfer_formats.layouts.block_scale import gather_scales, swizzle
from ninfer_formats.reader import open_artifact
from ninfer_formats.tensors import decode_tensor, encode_tensor
from ninfer_kernels.linear import decode_matrix
from ninfer_runtime.config import EngineConfig, resolve
from ninfer_runtime.engine.engine import Engine
from ninfer_runtime.errors import StartupError
from ninfer_runtime.models.qwen3_5.model import load_model, read_geometry
from ninfer_runtime.weights import source, staging, transfers
from ninfer_runtime.weights.encoding import encode_rows, find_largest
from ninfer_runtime.weights.placement import untile_scales
from ninfer_runtime.weights.prefetch import prefetch
from ninfer_runtime.weights.requantization import Requantization, parse_requantization
from ninfer_runtime.weights.source import WeightSource
from ninfer_runtime.weights.staging import HostStage

CPU = torch.device("cpu")
PROFILES = ("nvfp4", "groupwise-int", "fp8", "bf16")
MATRICES = (
    "text/token_embedding",
    "text/output_head",
    "text/layers/1/attention/output",
    "mtp/input_projection",
)


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("artifacts")
    checkpoint = build_checkpoint().write(folder / "m")
    return {
        p: converted(checkpoint, folder / f"{p}.ninfer", profile=p, proposal_rows=64)
        for p in PROFILES
    }


@pytest.fixture(scope="module")
def moe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("moe")
    return converted(
        build_checkpoint(moe=True).write(folder / "m"), folder / "a.ninfer", profile="nvfp4"
    )


def stage_on_host(device, clock, progress):
    return staging.PinnedStage(clock, progress, device)


def silent(count: int) -> None:
    """A progress nobody looks at."""


def source_of(artifact, decoded=False, requantize=None):
    plan = Requantization(requantize or {})
    return WeightSource(artifact, CPU, torch.float32, torch.float32, decoded, plan)


@pytest.mark.parametrize("decoded", [False, True])
@pytest.mark.parametrize("profile", PROFILES)
def test_loaded_matrices_decode_to_the_stored_values(artifacts, profile, decoded):
    """MEM-10: bit for bit, in the stored format and decoded at load."""
    artifact = artifacts[profile]
    weights = source_of(artifact, decoded)
    loaded = {name: weights.matrix(name) for name in MATRICES}
    weights.load(silent)
    for name, matrix in loaded.items():
        assert matrix.format == nf.FP32 or not decoded
        want = artifact.parameter(name).decode()
        assert np.array_equal(decode_matrix(matrix).numpy(), want), name


@pytest.mark.parametrize("rows", [1, 128, 200])
def test_blocks_of_any_size_load_the_same(artifacts, monkeypatch, rows):
    """MEM-11: a matrix of 320 rows in blocks; the last is short."""
    monkeypatch.setattr(HostStage, "block_bytes", rows * 200)
    artifact = artifacts["nvfp4"]
    weights = source_of(artifact)
    matrix = weights.matrix("text/token_embedding")
    weights.load(silent)
    want = artifact.parameter("text/token_embedding").decode()
    assert np.array_equal(decode_matrix(matrix).numpy(), want)


def test_joined_rows_keep_their_own_values(moe):
    """MEM-11: experts of one stack arrive in the order asked for, whatever the file's order."""
    names = [f"text/layers/0/moe/experts/{e}/up" for e in (2, 0, 1, 3)]
    weights = source_of(moe)
    matrix = weights.matrix(*names)
    weights.load(silent)
    want = np.concatenate([moe.parameter(name).decode() for name in names])
    assert np.array_equal(decode_matrix(matrix).numpy(), want)


def test_experts_that_lie_in_turn_travel_together(moe, monkeypatch):
    """MEM-11: gate and up of all experts are one transfer, in blocks of a few experts or whole."""
    names = [[f"text/layers/0/moe/experts/{e}/{r}" for e in range(4)] for r in ("gate", "up")]
    for size in (1, staging.HostStage.block_bytes):
        monkeypatch.setattr(HostStage, "block_bytes", size)
        weights, joined = source_of(moe), []
        matrices = [weights.matrix(*group) for group in names]
        monkeypatch.setattr(
            source, "interleave", lambda t, j=joined: j.extend(transfers.interleave(t)) or j
        )
        weights.load(silent)
        assert len(joined) == 1 and len(joined[0].targets) == 2
        for group, matrix in zip(names, matrices, strict=True):
            want = np.concatenate([moe.parameter(name).decode() for name in group])
            assert np.array_equal(decode_matrix(matrix).numpy(), want)


def test_vectors_keep_their_shape_and_get_the_asked_type(artifacts):
    artifact = artifacts["nvfp4"]
    weights = source_of(artifact)
    taps = weights.vector("text/layers/0/gdn/convolution", torch.bfloat16)
    joined = weights.vectors("vision/layers/0/norm1_weight", "vision/layers/0/norm1_bias")
    weights.load(silent)
    want = artifact.parameter("text/layers/0/gdn/convolution").decode()
    assert torch.equal(taps, torch.from_numpy(want).bfloat16())
    parts = [artifact.parameter(f"vision/layers/0/norm1_{n}").decode() for n in ("weight", "bias")]
    assert np.array_equal(joined.numpy(), np.concatenate(parts))


class Recorder:
    """A payload that remembers what was read of it."""

    def __init__(self, payload):
        self.payload, self.reads = payload, []

    def __getattr__(self, name):
        return getattr(self.payload, name)

    def read(self, offset, count):
        self.reads.append((offset, count))
        return self.payload.read(offset, count)


def load_recorded(artifact, path, **options):
    """Load a fresh copy of an artifact; return its record, the reads, and the artifact."""
    opened = open_artifact(artifact.path)
    recorder = Recorder(opened.payload)
    opened.payload = recorder
    geometry = read_geometry(opened)
    config = EngineConfig(device="cpu", max_context=64, **options)
    counted = []
    _, record = load_model(opened, geometry, resolve(config, geometry, True), counted.append)
    assert sum(counted) == record.bytes
    return recorder.reads, opened


def test_the_file_is_read_once_and_forwards(artifacts, tmp_path):
    """MEM-12: offsets never decrease."""
    reads, _ = load_recorded(artifacts["nvfp4"], tmp_path, speculator="mtp", vision=True)
    offsets = [offset for offset, _ in reads]
    assert len(offsets) > 40 and offsets == sorted(offsets)


def test_components_left_out_are_not_read(artifacts, tmp_path):
    """MEM-13: without MTP, tower and shortlist head only objects of the text decoder are read."""
    reads, artifact = load_recorded(artifacts["nvfp4"], tmp_path, vision=False)
    owners = artifact.examination.owners
    touched = {owners[o.id] for o in artifact.objects.values() if o.offset in dict(reads)}
    assert touched == {"text"}


def test_every_stored_format_of_a_matrix_counts_its_bytes_once(artifacts):
    """MEM-14: progress ends at the bytes that were read."""
    artifact = artifacts["bf16"]
    weights, counted = source_of(artifact), []
    weights.matrix("text/token_embedding")
    weights.vector("text/final_norm")
    record = weights.load(counted.append)
    objects = [artifact.bindings[n].parts[0].object for n in MATRICES[:1]]
    norm = artifact.bindings["text/final_norm"].parts[0].object
    want = sum(artifact.objects[name].bytes for name in (*objects, norm))
    assert record.bytes == sum(counted) == want


def test_seconds_of_a_load_add_up(artifacts):
    """MEM-14."""
    weights = source_of(artifacts["nvfp4"], decoded=True)
    weights.matrix("text/token_embedding")
    record = weights.load(silent)
    parts = (record.open, record.read, record.upload, record.prepare)
    assert all(part >= 0 for part in parts) and record.seconds == pytest.approx(sum(parts))
    for word in ("open", "read", "upload", "prepare", "GB/s"):
        assert word in str(record)


@pytest.mark.parametrize("profile", PROFILES)
def test_staged_blocks_arrive_like_direct_ones(artifacts, monkeypatch, profile):
    """MEM-11: the path of a GPU, with more blocks than buffers; buffers grow for wide tiles."""
    monkeypatch.setattr(staging, "STAGED_BYTES", 512)
    monkeypatch.setattr(source, "make_stage", stage_on_host)
    monkeypatch.setattr(staging.PinnedStage, "block_bytes", 512)
    artifact = artifacts[profile]
    weights, counted = source_of(artifact), []
    loaded = {name: weights.matrix(name) for name in MATRICES}
    weights.load(counted.append)
    assert len(counted) > 6
    for name, matrix in loaded.items():
        want = artifact.parameter(name).decode()
        assert np.array_equal(decode_matrix(matrix).numpy(), want), name


def test_broken_read_ends_the_load(artifacts, monkeypatch):
    """MEM-11: an error of a reader thread reaches the caller, and no thread stays."""

    def fail(batch, slot):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(staging, "_read", fail)
    monkeypatch.setattr(source, "make_stage", stage_on_host)
    weights = source_of(artifacts["nvfp4"])
    weights.matrix("text/token_embedding")
    with pytest.raises(OSError, match="Input/output"):
        weights.load(silent)
    assert not [t for t in threading.enumerate() if t.name.startswith("weights")]


def test_only_views_of_mapped_files_are_read_ahead(artifacts):
    """MEM-12."""
    artifact = artifacts["nvfp4"]
    object = artifact.bindings["text/token_embedding"].parts[0].object
    assert prefetch(artifact.payload_of(object)[10:5000])
    assert not prefetch(np.zeros(100, np.uint8))


def test_tile_order_of_scales_is_undone():
    """MEM-10: 200 rows of 6 blocks in tiles of 128 rows and 4 blocks."""
    tiles = swizzle(np.arange(1200, dtype=np.uint16).astype(np.uint8).reshape(200, 6))
    words = untile_scales(torch.from_numpy(tiles.reshape(-1)), 200, 6)
    assert np.array_equal(words.numpy(), gather_scales(tiles, 0, 200, 6))


def test_ranges_cut_inside_a_stack_or_between_stacks():
    """MEM-11: no block holds parts of stacks with different divisors."""
    assert list(transfers._ranges(10, 10, 4)) == [(0, 4), (4, 8), (8, 10)]
    assert list(transfers._ranges(12, 3, 7)) == [(0, 6), (6, 12)]
    assert list(transfers._ranges(12, 6, 4)) == [(0, 4), (4, 6), (6, 10), (10, 12)]


def edited(artifact, path, edit):
    """Write a copy of an artifact whose directory `edit` changed, padded to its old length."""
    data = bytearray(artifact.path.read_bytes())
    begin, size = artifact.prefix.json_offset, artifact.prefix.json_bytes
    root = json.loads(bytes(data[begin : begin + size]))
    edit(root)
    text = json.dumps(root, separators=(",", ":")).encode()
    data[begin : begin + size] = text.ljust(size)
    path.write_bytes(bytes(data))
    return open_artifact(path)


def test_one_error_names_everything_that_is_missing(artifacts, tmp_path):
    """MEM-15: two parameters of different components, before anything is read."""
    lost = ("text/final_norm", "mtp/final_norm")

    def drop(root):
        for name in lost:
            del root["bindings"][name]

    broken = edited(artifacts["bf16"], tmp_path / "b.ninfer", drop)
    broken.payload = recorder = Recorder(broken.payload)
    with pytest.raises(StartupError) as caught:
        Engine(broken, EngineConfig(device="cpu", max_context=64))
    assert all(name in str(caught.value) for name in lost)
    assert "\n" not in str(caught.value) and recorder.reads == []


def test_one_error_names_every_missing_file(artifacts, tmp_path):
    """MEM-15: parts are looked for before the first byte is read."""
    whole = artifacts["bf16"]
    folder = build_checkpoint().write(tmp_path / "m")
    split = converted(
        folder, tmp_path / "a.ninfer", profile="bf16", max_file_bytes=whole.file_bytes // 3
    )
    lost = [split.payload.file_path(index) for index in (1, 2)]
    for path in lost:
        path.unlink()
    opened = open_artifact(split.path)
    opened.payload = recorder = Recorder(opened.payload)
    with pytest.raises(StartupError) as caught:
        Engine(opened, EngineConfig(device="cpu", max_context=64))
    assert all(path.name in str(caught.value) for path in lost) and recorder.reads == []


def test_experts_of_mixed_formats_are_named(artifacts):
    """MEM-16."""
    weights = source_of(artifacts["nvfp4"])
    with pytest.raises(StartupError, match=r"mtp/input_projection: matrices .* different formats"):
        weights.matrix("text/layers/1/mlp/gate", "mtp/input_projection")


def test_parameter_without_a_kernel_is_named(artifacts):
    """MEM-16: token ids are no matrix, and a quantised matrix is no vector."""
    weights = source_of(artifacts["nvfp4"])
    with pytest.raises(StartupError, match=r"text/layers/1/mlp/gate: no kernel"):
        weights.vector("text/layers/1/mlp/gate")
    with pytest.raises(StartupError, match=r"proposal/token_ids: no kernel .*int32"):
        weights.matrix("proposal/token_ids")


@pytest.mark.parametrize("format", [nf.Q8, nf.Q4, nf.NVFP4, nf.FP8])
def test_requantised_matrix_equals_the_codec(artifacts, format):
    """MEM-17: as if the converter had encoded it."""
    artifact = artifacts["bf16"]
    weights = source_of(artifact, requantize={"mtp": format})
    matrix, kept = weights.matrix("mtp/input_projection"), weights.matrix("text/token_embedding")
    weights.load(silent)
    values = artifact.parameter("mtp/input_projection").decode()
    layout = nf.FORMATS[format].layout
    want = decode_tensor(encode_tensor(values, format), format, layout, values.shape)
    assert matrix.format == format and kept.format == nf.FP32
    assert np.array_equal(decode_matrix(matrix).numpy(), want)


@pytest.mark.parametrize("format", [nf.Q4, nf.Q5, nf.Q6, nf.Q8, nf.NVFP4, nf.FP8])
@pytest.mark.parametrize("scale", [0.02, 1e-6, 1e-38, 300.0])
def test_rows_encoded_on_the_device_equal_the_codec_bit_for_bit(format, scale):
    """MEM-17: zeros of both signs, ties and tiny rows among them; widths that need padding."""
    generator = torch.Generator().manual_seed(5)
    rows = (torch.randn(133, 200, generator=generator) * scale).bfloat16()
    rows[0], rows[1, :9] = 0, -0.0
    rows[2] = (torch.arange(200) % 17 - 8) * scale / 4
    words = rows.view(torch.int16).numpy().view(np.uint16)
    largest = find_largest(words)
    assert largest == float(rows.float().abs().max())
    want = decode_tensor(
        encode_tensor(words, format), format, nf.FORMATS[format].layout, rows.shape
    )
    got = decode_matrix(encode_rows(rows, format, float(nvfp4.choose_divisor(largest)))).numpy()
    assert np.array_equal(got.view(np.uint32), want.view(np.uint32))


def test_requantising_leaves_quantised_and_delicate_matrices_alone(artifacts):
    """MEM-17."""
    plan = Requantization({"text": nf.Q8, "head": nf.Q4})
    assert plan.target("text/layers/0/moe/router") is None
    assert plan.target("text/layers/0/gdn/a_projection") is None
    assert plan.target("text/layers/0/gdn/query") == nf.Q8
    assert plan.target("text/output_head") == nf.Q4
    assert plan.target("text/token_embedding") is None
    assert Requantization({"head": nf.Q4}, tied=True).target("text/token_embedding") == nf.Q4
    weights = source_of(artifacts["nvfp4"], requantize={"text": nf.Q8})
    assert weights.matrix("text/layers/1/mlp/gate").format == nf.NVFP4


@pytest.mark.parametrize("text", ["head", "head=q8", "nose=w8", "head=w8,head=w4"])
def test_requantisation_that_is_not_understood_is_bad_usage(text):
    """MEM-17."""
    assert parse_requantization("head=w8, mtp=nvfp4") == {"head": nf.Q8, "mtp": nf.NVFP4}
    with pytest.raises(UsageError, match="--requantize"):
        parse_requantization(text)
