"""Every kind of source under every profile: what a reader decodes is what the rules say.

Sources: S-50 to S-56, S-62, S-65; profiles: V-10, V-11. Expected values come from
`builders.plain_codecs` and the builders, not from the package's encoders and decoders.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
import typer

from builders.checkpoints import build_checkpoint
from builders.conversions import convert, converted, read_report
from builders.model_sources import SOURCES, add_generation
from builders.plain_codecs import absmax_divisor, round_trip
from ninfer_tools.cli import app

PROFILES = ("nvfp4", "groupwise-int", "fp8", "bf16")
# Building the command line anew for every call would take longer than the calls.
COMMAND_LINE = typer.main.get_command(app)
HEAD, IDS = "proposal/head", "proposal/token_ids"


def as_rows(values):
    """A vector has one column, a convolution kernel as many as all axes but the first."""
    return values.reshape(len(values), -1)


def read_parameters(artifact):
    """Decode all parameters, and list the format and the object of each."""
    found = {name: artifact.parameter(name) for name in artifact.bindings}
    decoded = {name: parameter.decode() for name, parameter in found.items()}
    tensors = {name: parameter.parts[0].tensor for name, parameter in found.items()}
    return decoded, tensors


def read_methods(out):
    objects = read_report(out)["objects"]
    return {name: item["method"] for item in objects for name in item["parameters"]}


def add_proposal(values, decoded, head):
    """The proposal head holds rows of the output head."""
    return values | {HEAD: head[decoded[IDS].astype(np.int64)], IDS: decoded[IDS]}


def list_members(tensors, methods):
    """Object -> its parameters that were encoded as NVFP4: they share a divisor."""
    members = {}
    for name, tensor in tensors.items():
        if tensor.format == "nvfp4" and methods[name] != "import":
            members.setdefault(tensor.id, []).append(name)
    return members.values()


def assert_imported(name, decoded, want, not_bit_equal):
    if name in not_bit_equal:
        np.testing.assert_allclose(decoded, want, rtol=2.0**-23, atol=0, err_msg=name)
    else:
        np.testing.assert_array_equal(decoded, want, err_msg=name)


def assert_searched(names, decoded, values):
    """NF-49: not worse than absmax on the same rows."""
    rows = np.concatenate([as_rows(values[name]) for name in names])
    found = np.concatenate([as_rows(decoded[name]) for name in names])
    plain = round_trip(rows, "nvfp4", absmax_divisor(float(np.abs(rows).max())))
    errors = [np.square(rows.astype(np.float64) - item).sum() for item in (found, plain)]
    assert errors[0] <= errors[1], names
    assert errors[0] < 0.015 * np.square(rows.astype(np.float64)).sum(), names


def assert_parameters(artifact, out, source):
    values = source.values
    head = values["text/output_head"] if source.plain_head is None else source.plain_head
    decoded, tensors = read_parameters(artifact)
    methods, odd = read_methods(out), set(read_report(out)["not_bit_equal"])
    if IDS in decoded:
        values = add_proposal(values, decoded, head)
    assert set(decoded) == set(values)
    for name, want in values.items():
        assert decoded[name].shape == want.shape, name
        if methods.get(name) == "import":
            assert_imported(name, decoded[name], want, odd)
        elif name != IDS and tensors[name].format != "nvfp4":
            want = round_trip(as_rows(want), tensors[name].format)
            np.testing.assert_array_equal(as_rows(decoded[name]), want, err_msg=name)
    for names in list_members(tensors, methods):
        assert_searched(names, decoded, values)


def assert_commands_agree(out, folder, options):
    """`check`, `inspect --verify` and `verify --against` find nothing."""
    sources = [word for option in options for word in ("--source", option)]
    for words in (["check", out], ["inspect", out, "--verify"], ["verify", out, *sources]):
        if words[0] == "verify":
            words += ["--against", folder]
        assert not COMMAND_LINE([str(word) for word in words], standalone_mode=False), words


@pytest.mark.parametrize("name", SOURCES)
def test_every_profile_holds_the_values_of_every_source(tmp_path, capsys, name):
    source = SOURCES[name]()
    folder, options = source.write(tmp_path)
    for profile in PROFILES:
        out = tmp_path / f"{profile}.ninfer"
        rows = None if "text only" in name else 64
        artifact = converted(folder, out, profile=profile, sources=options, proposal_rows=rows)
        assert_parameters(artifact, out, source)
        if source.notice:
            assert any(source.notice in text for text in read_report(out)["notices"])
        assert_commands_agree(out, folder, options)
    assert "outside" not in capsys.readouterr().out


@pytest.mark.parametrize("moe", [False, True])
def test_absmax_nvfp4_holds_the_written_values(tmp_path, moe):
    """NF-43 to NF-45: value by value, one divisor for everything that is packed together."""
    tiny, out = build_checkpoint(moe=moe), tmp_path / "a.ninfer"
    artifact = converted(tiny.write(tmp_path / "m"), out, rules=["text/layers/*=nvfp4:absmax"])
    decoded, tensors = read_parameters(artifact)
    groups = list(list_members(tensors, read_methods(out)))
    assert len(groups) > (5 if moe else 3) and any(len(names) > 3 for names in groups)
    for names in groups:
        divisor = absmax_divisor(max(float(np.abs(tiny.values[name]).max()) for name in names))
        for name in names:
            want = round_trip(tiny.values[name], "nvfp4", divisor)
            np.testing.assert_array_equal(decoded[name], want, err_msg=name)


def test_proposal_without_ranking_holds_low_and_special_tokens(tmp_path):
    """V-21, by the tokenizer's own files."""
    tiny = build_checkpoint()
    added = json.loads(tiny.resources["tokenizer_config.json"])["added_tokens_decoder"]
    special = sorted(int(number) for number, token in added.items() if token["special"])
    artifact = converted(tiny.write(tmp_path / "m"), tmp_path / "a.ninfer", proposal_rows=100)
    low = [number for number in range(289) if number not in special]
    want = low[: 100 - len(special)] + special
    assert artifact.parameter(IDS).decode().tolist() == want


PRESERVE = "{% if preserve_thinking %}<think>{{ message.reasoning_content }}</think>{% endif %}"
TEMPLATES = {
    "3.5": "{% for message in messages %}{{ message.content.split('</think>')[-1] }}{% endfor %}",
    "3.6": "{% for message in messages %}" + PRESERVE + "{{ message.content }}{% endfor %}",
    "3.8": "{% set effort = reasoning_effort or 'xhigh' %}{{ effort }}\n<think>\n — é",
}


@pytest.mark.parametrize(
    "place", ["chat_template.jinja", "chat_template.json", "tokenizer_config.json"]
)
@pytest.mark.parametrize("generation", TEMPLATES)
def test_chat_template_of_every_generation_comes_through(tmp_path, generation, place):
    """S-30, S-31: byte for byte, wherever the release keeps it."""
    tiny = build_checkpoint(vision=False, mtp=False)
    add_generation(tiny, place, TEMPLATES[generation])
    folder = tiny.write(tmp_path / "m")
    artifact = converted(folder, tmp_path / "a.ninfer", profile="bf16")
    stored = artifact.payload_of("resource/text/chat_template.jinja").tobytes()
    assert stored == TEMPLATES[generation].encode()
    files = {role: (folder / role).read_bytes() for role in tiny.resources if role.endswith("n")}
    for role, raw in files.items():
        if f"resource/text/{role}" in artifact.objects:
            assert artifact.payload_of(f"resource/text/{role}").tobytes() == raw, role


@pytest.mark.parametrize("companion", ["mtp", "quantized"])
def test_companion_without_what_it_was_named_for_is_refused(tmp_path, capsys, companion):
    """S-79: it would change nothing, without a word."""
    base, other = build_checkpoint(), build_checkpoint(seed=4)
    if companion == "mtp":
        other.drop("mtp.")
    given = other.write(tmp_path / "other")
    out = tmp_path / "o" / "a.ninfer"
    out.parent.mkdir()
    sources = [f"{companion}={given}"]
    assert convert(base.write(tmp_path / "m"), out, sources=sources) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{given}: the source given as {companion} has no ")
    assert list(out.parent.iterdir()) == []
