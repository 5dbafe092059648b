"""Laws of written synthetic artifacts: whole, legal, reproducible, all or nothing."""

from __future__ import annotations

import hashlib

import pytest
import tokenizers

from ninfer_formats.directory import Tensor
from ninfer_formats.errors import UsageError
from ninfer_formats.inventories.parameters import list_parameters
from ninfer_formats.output_target import OutputTarget
from ninfer_formats.reader import Artifact, open_artifact
from ninfer_formats.tensors import find_illegal_words
from ninfer_tools.synthetic import artifact as artifact_module
from ninfer_tools.synthetic.artifact import open_synthetic, write_synthetic
from ninfer_tools.synthetic.artifact_plan import plan_artifact
from ninfer_tools.synthetic.payloads import open_worker
from ninfer_tools.synthetic.specification import SyntheticSpec, parse_spec

# The first four layers of the smallest model hold every kind of layer; one layer keeps it small.
SPECS = {
    "nvfp4-official": "qwen3.5-0.8b:nvfp4-official:layers=4:vocab=2000:components=text",
    "nvfp4": "qwen3.5-0.8b:nvfp4:layers=1:vocab=600:components=text",
    "groupwise-int": "qwen3.5-0.8b:groupwise-int:layers=1:vocab=600:components=text",
    "fp8": "qwen3.5-0.8b:fp8:layers=1:vocab=600:components=text",
    "bf16": "qwen3.5-0.8b:bf16:layers=1:vocab=600:components=text",
}
SMALL = SPECS["nvfp4"]


@pytest.fixture(scope="module", params=SPECS.values(), ids=SPECS)
def written(request, tmp_path_factory) -> tuple[str, Artifact]:
    path = tmp_path_factory.mktemp("synthetic") / "x.ninfer"
    told: list[tuple[int, int]] = []
    size = write_synthetic(
        parse_spec(request.param), path, progress=lambda done, total: told.append((done, total))
    )
    assert path.stat().st_size == size
    assert told == sorted(told) and told[-1][0] == told[0][1] == told[-1][1]
    artifact = open_artifact(path)
    path.unlink()  # The map keeps the bytes; the disk need not.
    return request.param, artifact


def expected_names(spec: SyntheticSpec) -> set[str]:
    return {p.name for p in list_parameters(spec.geometry(), spec.components, spec.proposal)}


def errors_of(artifact: Artifact, largest: int = 1 << 62) -> list[str]:
    """Illegal words of every tensor up to a size."""
    found = []
    for item in artifact.tensors():
        if item.bytes <= largest:
            words = find_illegal_words(
                artifact.payload_of(item.id), item.format, item.layout, item.shape
            )
            found += [f"{item.id}: {f.message}" for f in words if f.severity == "error"]
    return found


def test_every_parameter_is_bound_and_every_word_is_legal(written):
    text, artifact = written
    spec = parse_spec(text)
    assert set(artifact.bindings) == expected_names(spec)
    assert artifact.find_problems() == []
    assert errors_of(artifact) == []


def test_generated_payload_equals_the_written_one(written):
    text, artifact = written
    made = open_synthetic(text)
    assert made.file_bytes == artifact.file_bytes and made.version == artifact.version
    assert made.raw_directory() == artifact.raw_directory()
    assert made.payload.header(0).tobytes() == artifact.payload.header(0).tobytes()
    assert (made.payload.read(0, made.payload.bytes) == artifact.payload.file(0)[
        artifact.prefix.payload_start :
    ]).all()  # fmt: skip


def test_device_path_covers_every_byte_in_order():
    """A device draws plane by plane; with the CPU in its place the bytes are the CPU's."""
    text = SPECS["nvfp4-official"].replace("layers=4", "layers=1")
    plan = plan_artifact(parse_spec(text), "x.ninfer")
    made, ends = open_synthetic(text), dict.fromkeys(plan.written.objects, 0)
    for name, offset, data in artifact_module._draw_on_device(plan, open_worker("cpu")):
        assert offset == ends[name]
        begin = plan.written.objects[name].offset + offset
        assert (made.payload.read(begin, data.size) == data).all()
        ends[name] += data.size
    assert ends == {name: item.bytes for name, item in plan.written.objects.items()}


@pytest.mark.parametrize("profile", SPECS)
def test_other_components_are_whole_and_legal(profile):
    artifact = open_synthetic(f"qwen3.5-0.8b:{profile}:layers=1:vocab=600")
    spec = parse_spec(f"qwen3.5-0.8b:{profile}:layers=1:vocab=600")
    assert set(artifact.components) == {"text", "mtp", "vision"}
    assert set(artifact.bindings) == expected_names(spec)
    assert artifact.find_problems() == [] and errors_of(artifact, 1 << 20) == []


@pytest.mark.parametrize("profile", SPECS)
@pytest.mark.parametrize(
    "model", ["qwen3.6-35b-a3b", "qwen3.5-122b-a10b", "qwen3.5-4b", "qwen3.8-27b"]
)
def test_every_size_has_a_whole_directory(model, profile):
    text = f"{model}:{profile}:layers=4:vocab=600"
    artifact, spec = open_synthetic(text), parse_spec(text)
    assert set(artifact.bindings) == expected_names(spec)
    assert artifact.find_problems() == [] and errors_of(artifact, 1 << 14) == []
    uses = [use for use in artifact.uses if use.activation_policy == "AllowA4"]
    assert all(use.auxiliaries for use in uses) and (profile == "nvfp4-official") == bool(uses)


@pytest.mark.parametrize(
    ("model", "drafter"), [("qwen3.8-27b", "dflash2"), ("qwen3.6-35b-a3b", "dflash")]
)
def test_drafters_are_whole_and_legal(model, drafter):
    text = f"{model}:groupwise-int:layers=2:vocab=600:{drafter}=1:components=text"
    artifact, spec = open_synthetic(text), parse_spec(text)
    assert artifact.components[drafter].target == "text"
    assert set(artifact.bindings) == expected_names(spec)
    assert errors_of(artifact, 1 << 17) == []


def test_same_specification_gives_the_same_bytes_whatever_the_threads(tmp_path):
    found = set()
    for threads in (1, 5):
        path = tmp_path / f"{threads}.ninfer"
        write_synthetic(parse_spec(SMALL), path, threads=threads)
        found.add(hashlib.sha256(path.read_bytes()).hexdigest())
        path.unlink()
    assert len(found) == 1


def test_another_seed_gives_another_id_and_other_weights():
    first, second = open_synthetic(SMALL), open_synthetic(f"{SMALL}:seed=1")
    assert first.prefix.artifact_id != second.prefix.artifact_id
    name = "text/layers/0/input_norm"
    assert (first.parameter(name).decode() != second.parameter(name).decode()).any()


def test_parts_hold_the_same_payload_and_a_forced_write_replaces_them(tmp_path):
    path, made = tmp_path / "x.ninfer", open_synthetic(SMALL)
    write_synthetic(parse_spec(SMALL), path, max_file_bytes=5_000_000)
    artifact, size = open_artifact(path), made.payload.bytes
    assert len(artifact.files) == len(list(tmp_path.iterdir())) > 2
    assert (artifact.payload.read(0, size) == made.payload.read(0, size)).all()
    with pytest.raises(UsageError, match="exists"):
        write_synthetic(parse_spec(SMALL), path)
    write_synthetic(parse_spec(SMALL), path, force=True)
    assert [item.name for item in tmp_path.iterdir()] == ["x.ninfer"]


def test_interrupt_leaves_nothing_behind(tmp_path):
    def stop(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_synthetic(parse_spec(SMALL), tmp_path / "x.ninfer", progress=stop)
    assert list(tmp_path.iterdir()) == []


def test_full_disk_is_refused_before_the_first_byte(tmp_path, monkeypatch):
    monkeypatch.setattr(OutputTarget, "free_bytes", lambda self: 10_000_000)
    with pytest.raises(UsageError, match="not enough free disk space"):
        write_synthetic(parse_spec(SMALL), tmp_path / "x.ninfer")
    assert list(tmp_path.iterdir()) == []


def test_resources_make_a_working_tokenizer():
    artifact = open_synthetic(SPECS["nvfp4-official"])
    found = tokenizers.Tokenizer.from_str(artifact.resource("tokenizer.json").decode())
    text = "Grüße, 世界!\n\tdef f(x): return x ** 2 🙂"
    assert found.get_vocab_size() == 2000
    assert found.decode(found.encode(text).ids) == text
    config = artifact.components["text"].config
    assert found.get_vocab_size() < config["vocab_size"]


def test_provenance_names_the_specification_and_the_device():
    artifact = open_synthetic("qwen3.5-0.8b:fp8:vocab=600:components=text:layers=1:seed=0")
    assert artifact.metadata["name"] == "qwen3.5-0.8b"
    assert artifact.provenance == {
        "converter": "ninfer",
        "synthetic": "qwen3.5-0.8b:fp8:layers=1:vocab=600:components=text",
        "device": "cpu",
    }


def test_unknown_container_version_is_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot be written"):
        write_synthetic(parse_spec(SMALL), tmp_path / "x.ninfer", container=1)


def test_objects_lie_resources_first_then_weights_then_auxiliaries():
    artifact = open_synthetic("qwen3.5-0.8b:nvfp4-official:layers=1:vocab=600")
    ids = list(artifact.objects)
    weights = [i for i in ids if isinstance(artifact.objects[i], Tensor) and i[:6] == "weight"]
    auxiliaries = [i for i in ids if i.startswith("auxiliary/")]
    assert ids[:6] == [
        "resource/text/tokenizer.json",
        "resource/text/tokenizer_config.json",
        "resource/text/chat_template.jinja",
        "resource/text/generation_config.json",
        "resource/vision/preprocessor_config.json",
        "resource/vision/video_preprocessor_config.json",
    ]
    assert weights == [f"weight/{i:06d}" for i in range(len(weights))]
    assert auxiliaries == [f"auxiliary/{i:06d}" for i in range(len(auxiliaries))]
    assert ids == ids[:6] + weights + auxiliaries
