"""Checkpoints that must not be converted: one line each with tensor and file, and nothing written.

Every entry of "preflight refuses" in several shapes, through the command: S-10 to S-12, S-20 to
S-25, S-33, S-34, S-57 to S-60, S-66, S-76 to S-78. What each check finds in detail: `sources/`.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from builders.checkpoints import INDEX, build_checkpoint
from builders.conversions import convert
from builders.stored_forms import Stored, encode_safetensors
from ninfer_formats.errors import NumericError
from ninfer_tools.convert.sources.checkpoint import open_checkpoint

TEXT = "model.language_model."
DOWN = f"{TEXT}layers.1.mlp.down_proj"
SHARDS = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
EMBEDDING = f"{TEXT}embed_tokens.weight"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 9\n"
PAGE = b"<!DOCTYPE html><html><body>Sign in</body></html>"


def edit_index(change):
    def edit(folder):
        index = json.loads((folder / INDEX).read_text())
        change(index["weight_map"])
        (folder / INDEX).write_text(json.dumps(index))

    return edit


def cut(change):
    def edit(folder):
        path = folder / SHARDS[0]
        path.write_bytes(change(path.read_bytes()))

    return edit


def replace_file(name, raw):
    return lambda folder: (folder / name).write_bytes(raw)


def store_twice(folder):
    tensors = build_checkpoint().tensors
    chosen = {name: tensors[name] for name in [*list(tensors)[1::3], EMBEDDING]}
    (folder / SHARDS[1]).write_bytes(encode_safetensors(chosen))


def edit_json(name, change):
    def edit(folder):
        content = json.loads((folder / name).read_text())
        change(content)
        (folder / name).write_text(json.dumps(content))

    return edit


def edit_text_config(**changes):
    return edit_json("config.json", lambda config: config["text_config"].update(changes))


FILES = {
    "index names a tensor that nobody has": (
        edit_index(lambda m: m.update({f"{TEXT}ghost.weight": SHARDS[0]})),
        [f"{TEXT}ghost.weight", SHARDS[0], INDEX],
    ),
    "tensor in another shard": (
        edit_index(lambda m: m.update({EMBEDDING: SHARDS[1]})),
        [EMBEDDING, SHARDS[0], SHARDS[1], INDEX],
    ),
    "tensor in two shards": (store_twice, [EMBEDDING, SHARDS[0], SHARDS[1]]),
    "shard is absent": (lambda folder: (folder / SHARDS[2]).unlink(), [SHARDS[2]]),
    "shard is outside": (
        edit_index(lambda m: m.update({EMBEDDING: f"../{SHARDS[0]}"})), [f"../{SHARDS[0]}"],
    ),
    "index is cut short": (replace_file(INDEX, b'{"weight_map": {'), [INDEX]),
    "shard lacks its last byte": (cut(lambda raw: raw[:-1]), [SHARDS[0], "cut short"]),
    "shard lacks a half": (cut(lambda raw: raw[: len(raw) // 2]), [SHARDS[0], "cut short"]),
    "shard lacks half a header": (cut(lambda raw: raw[:100]), [SHARDS[0], "cut short"]),
    "shard is empty": (cut(lambda raw: b""), [SHARDS[0], "empty"]),
    "shard is zeros": (cut(lambda raw: bytes(len(raw))), [SHARDS[0], "zeros"]),
    "shard is longer": (cut(lambda raw: raw + b"\0"), [SHARDS[0], "longer"]),
    "shard is a pointer": (cut(lambda raw: POINTER), [SHARDS[0], "git-lfs"]),
    "shard is a page": (cut(lambda raw: PAGE), [SHARDS[0], "HTML"]),
    "index is a pointer": (replace_file(INDEX, POINTER), [INDEX, "git-lfs"]),
    **{
        f"{name} is a {what}": (replace_file(name, raw), [f"/{name}: file holds", text])
        for name in ("config.json", "tokenizer.json", "chat_template.jinja")
        for what, raw, text in (("pointer", POINTER, "git-lfs"), ("page", PAGE, "HTML"))
    },
    "template is a gzip archive": (
        replace_file("chat_template.jinja", b"\x1f\x8b\x08" + b"a" * 60),
        ["chat_template.jinja", "gzip"],
    ),
    "config is cut short": (replace_file("config.json", b"{"), ["config.json", "not JSON"]),
    "config is a list": (replace_file("config.json", b"[]"), ["config.json", "list"]),
    "config is absent": (lambda folder: (folder / "config.json").unlink(), ["no config.json"]),
    "wider feed-forward": (
        edit_text_config(intermediate_size=256),
        [f"{DOWN}.weight", "-of-00003", "[128, 192]", "[128, 256]"],
    ),
    "more layers": (
        edit_text_config(num_hidden_layers=3, layer_types=["linear_attention"] * 3),
        [f"{TEXT}layers.2."],
    ),
    "fewer layers": (
        edit_text_config(num_hidden_layers=1, layer_types=["linear_attention"]),
        ["number of layers", "2 in the weights", "want 1"],
    ),
    "token past the rows": (
        edit_json("tokenizer.json", lambda t: t["model"]["vocab"].update({"far": 320})),
        ["320 (far)", "tokenizer.json", "0 to 319"],
    ),
    "added token past the rows": (
        edit_json(
            "tokenizer_config.json",
            lambda t: t["added_tokens_decoder"].update({"400": {"content": "<far>"}}),
        ),
        ["400 (<far>)", "tokenizer_config.json"],
    ),
    "two texts for one id": (
        edit_json(
            "tokenizer_config.json",
            lambda t: t["added_tokens_decoder"]["256"].update(content="<other>"),
        ),
        ["256 is <|endoftext|> in tokenizer.json and <other> in tokenizer_config.json"],
    ),
}  # fmt: skip


def assert_refused(folder, target, capsys, words):
    """Exit code 1 and lines on stderr, one of which has every word; nothing beside the target."""
    assert convert(folder, target / "a.ninfer") == 1
    lines = capsys.readouterr().err.splitlines()
    assert any(all(word in line for word in words) for line in lines), lines
    assert all(line.startswith(str(folder)) for line in lines)
    assert list(target.iterdir()) == []
    return lines


@pytest.fixture
def target(tmp_path):
    folder = tmp_path / "target"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("name", FILES)
def test_files_that_contradict_each_other_are_refused_by_name(tmp_path, capsys, target, name):
    change, words = FILES[name]
    folder = build_checkpoint().write(tmp_path / "m", 3)
    change(folder)
    assert_refused(folder, target, capsys, words)


@pytest.mark.parametrize("name", ["cut short", "list", "absent"])
def test_unreadable_config_is_one_problem(tmp_path, capsys, target, name):
    """S-76: not also every key that it would have had."""
    change, words = FILES[f"config is {'a ' if name == 'list' else ''}{name}"]
    folder = build_checkpoint().write(tmp_path / "m", 3)
    change(folder)
    assert len(assert_refused(folder, target, capsys, words)) == 1


SCALES = [
    ("ct_nvfp4", "weight_scale"), ("ct_nvfp4", "weight_global_scale"),
    ("modelopt_nvfp4", "weight_scale"), ("modelopt_nvfp4", "weight_scale_2"),
    ("ct_row", "weight_scale"), ("ct_tensor", "weight_scale"), ("ct_block", "weight_scale"),
    ("hf_block", "weight_scale_inv"), ("modelopt_fp8", "weight_scale"),
]  # fmt: skip
# A word of each type that is zero, negative, infinite and NaN; E4M3 has no infinity.
BAD_WORDS = {
    "F32": [0.0, -1.0, np.inf, np.nan],
    "BF16": [0x0000, 0xBF80, 0x7F80, 0x7FC0],
    "F8_E4M3": [0x80, 0xB8, 0xFF, 0x7F],
}


@pytest.mark.parametrize(("form", "part"), SCALES)
def test_scales_that_are_missing_or_no_scales_are_refused_by_name(
    tmp_path, capsys, target, form, part
):
    """S-57, S-60: by the name of the scale, and its file."""
    name = f"{DOWN}.{part}"
    tiny = build_checkpoint(form=form)
    good = tiny.tensors[name]
    spoiled = [Stored(good.dtype, good.words.copy()) for _ in BAD_WORDS[good.dtype]]
    for stored, word in zip(spoiled, BAD_WORDS[good.dtype], strict=True):
        stored.words.reshape(-1)[-1:] = word
    spoiled += [
        Stored(good.dtype, np.repeat(good.words.reshape(-1), 3)),
        Stored("I32", np.ones(good.words.shape, "<i4")),
    ]
    for number, stored in enumerate(spoiled):
        tiny.tensors[name] = stored
        folder = tiny.write(tmp_path / str(number))
        assert_refused(folder, target, capsys, [name, "model.safetensors", "scale"])
    del tiny.tensors[name]
    words = [DOWN, "weight_scale", "model.safetensors", "missing"]
    if form not in ("hf_block", "modelopt_nvfp4") or part != "weight_scale":
        words[1] = part.replace("_inv", "")
    assert_refused(tiny.write(tmp_path / "none"), target, capsys, words)


@pytest.mark.parametrize(
    ("form", "part", "value"),
    [
        ("ct_nvfp4", "weight_global_scale", 7e-36),
        ("modelopt_nvfp4", "weight_scale_2", 2e35),
        ("modelopt_fp8", "weight_scale", 1e36),
        ("ct_block", "weight_scale", 1e36),
    ],
)
def test_scales_that_make_infinities_are_refused(tmp_path, capsys, target, form, part, value):
    """S-78: finite and above zero, and no weight under them would be a number."""
    tiny = build_checkpoint(form=form)
    stored = tiny.tensors[f"{DOWN}.{part}"]
    stored.words[...] = value
    words = [f"{DOWN}.{part}", "model.safetensors", "largest code is finite"]
    assert_refused(tiny.write(tmp_path / "m"), target, capsys, words)
    stored.words[...] = value * (10 if form == "ct_nvfp4" else 0.1)
    assert open_checkpoint(tiny.write(tmp_path / "n")).problems == ()
    assert convert(tmp_path / "n", target / "a.ninfer") == 0


PLACES = {
    f"{DOWN}.weight": ("text/layers/1/mlp/down", (100, 5)),
    f"{TEXT}norm.weight": ("text/final_norm", (7,)),
    f"{TEXT}layers.1.self_attn.q_proj.weight": ("text/layers/1/attention/gate", (70, 3)),
    f"{TEXT}layers.0.linear_attn.conv1d.weight": ("text/layers/0/gdn/convolution", (9, 0, 2)),
    "model.visual.patch_embed.proj.weight": ("vision/patch_embedding", (3, 1, 1, 2, 2)),
    "mtp.fc.weight": ("mtp/input_projection", (2, 200)),
    "lm_head.weight": ("text/output_head", (319, 0)),
}


@pytest.mark.parametrize("profile", ["nvfp4", "groupwise-int", "fp8", "bf16"])
@pytest.mark.parametrize("name", PLACES)
def test_weights_that_are_no_numbers_are_refused_by_name(tmp_path, target, name, profile):
    """S-59 under every profile: encoded, cast, transposed and cut out of larger tensors."""
    parameter, place = PLACES[name]
    tiny = build_checkpoint()
    tiny.tensors[name].words[place] = 0x7FC0 if profile != "fp8" else 0xFF80
    folder = tiny.write(tmp_path / "m")
    with pytest.raises(NumericError) as refused:
        convert(folder, target / "a.ninfer", profile=profile)
    text = str(refused.value)
    for word in (name, parameter, "model.safetensors", "NaN or infinite", "0x"):
        assert word in text
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("form", ["ct_row", "ct_tensor", "ct_block", "hf_block", "modelopt_fp8"])
def test_codes_that_are_no_numbers_are_refused_by_name(tmp_path, target, form):
    """S-59: imported and dequantised."""
    tiny = build_checkpoint(form=form)
    tiny.tensors[f"{DOWN}.weight"].words[100, 5] = 0x7F
    folder = tiny.write(tmp_path / "m")
    with pytest.raises(NumericError, match=r"row 100, column 5") as refused:
        convert(folder, target / "a.ninfer")
    assert f"{DOWN}.weight" in str(refused.value) and "model.safetensors" in str(refused.value)
    assert list(target.iterdir()) == []


PAST = {"bf16": 3.4e38, "fp8": 3.4e38, "groupwise-int": 1e6}


@pytest.mark.parametrize("profile", PAST)
@pytest.mark.parametrize("name", [f"{DOWN}.weight", f"{TEXT}norm.weight"])
def test_weights_that_are_too_large_for_their_format_are_refused(tmp_path, target, name, profile):
    """S-77: never infinity, and never another weight's scale."""
    tiny = build_checkpoint(dtype="F32")
    words = tiny.tensors[name].words
    place = (words.shape[0] - 1,) if words.ndim == 1 else (100, 5)
    words[place] = 3.4e38 if name.endswith("norm.weight") else -PAST[profile]
    folder = tiny.write(tmp_path / "m")
    with pytest.raises(NumericError, match="weight is too large for") as refused:
        convert(folder, target / "a.ninfer", profile=profile)
    text = str(refused.value)
    assert name in text and "model.safetensors" in text and f"row {place[0]}, " in text
    assert list(target.iterdir()) == []
    words[place] = 3.38e38 if name.endswith("norm.weight") else 9e5
    assert convert(tiny.write(tmp_path / "n"), target / "a.ninfer", profile=profile) == 0
