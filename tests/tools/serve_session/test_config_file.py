"""Laws of `--served-config`: every option by its long name, the command line first."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from ninfer_formats.errors import NinferError, UsageError
from ninfer_tools.serve_session.config_file import read_config
from ninfer_tools.serve_session.gathering import gather
from ninfer_tools.serve_session.options import ServeOptions, is_flag, option_name

# A value of every type, unlike any default.
_SAMPLES = {
    "int": (7, "7"), "float": (0.25, "0.25"), "str": ("word", '"word"'),
    "Path": (Path("/some/file"), '"/some/file"'), "tuple": (("a", "b"), '["a", "b"]'),
}  # fmt: skip


def write(folder: Path, text: str) -> Path:
    path = folder / "served.toml"
    path.write_text(text)
    return path


def test_every_option_can_stand_in_a_file(tmp_path: Path):
    lines, want = ['file = "/models/x.ninfer"'], {}
    for item in fields(ServeOptions):
        kind = str(item.type).removesuffix(" | None").partition("[")[0]
        if is_flag(item.type):
            want[item.name], text = not item.default, str(not item.default).lower()
        else:
            want[item.name], text = _SAMPLES[kind]
        lines.append(f"{option_name(item.name)} = {text}")
    found = gather(None, None, write(tmp_path, "\n".join(lines)), {})
    assert found.file == Path("/models/x.ninfer")
    assert vars(found.options) == want


def test_the_command_line_wins(tmp_path: Path):
    path = write(
        tmp_path, 'file = "a.ninfer"\nport = 1\ncors = true\nmodel-id = "x"\napi-key = ["k"]'
    )
    given = {"port": 2, "cors": False, "model_id": None, "api_key": []}
    found = gather(Path("b.ninfer"), None, path, given)
    assert found.file == Path("b.ninfer")
    options = found.options
    assert (options.port, options.cors, options.model_id, options.api_key) == (
        2,
        False,
        "x",
        ("k",),
    )


def test_negative_names_and_older_names_are_known(tmp_path: Path):
    found = read_config(
        write(tmp_path, "no-cuda-graph = true\nno-thinking = true\ndefault-thinking-budget = 9")
    )
    assert found == {"cuda_graph": False, "thinking": False, "thinking_budget": 9}
    assert read_config(write(tmp_path, "no-cuda-graph = false")) == {"cuda_graph": True}


def test_amounts_may_be_numbers(tmp_path: Path):
    found = read_config(write(tmp_path, "kv-capacity = 4096\nheadroom = 1024\ntop-p = 1"))
    assert found == {"kv_capacity": "4096", "headroom": "1024", "top_p": 1.0}


def test_paths_are_relative_to_the_file(tmp_path: Path):
    found = read_config(write(tmp_path, 'file = "x.ninfer"\nchat-template = "t.jinja"'))
    assert found == {"file": tmp_path / "x.ninfer", "chat_template": tmp_path / "t.jinja"}


def test_every_mistake_has_a_line_that_names_it(tmp_path: Path):
    text = (
        'max-contex = 5\nport = "80"\ncors = 1\nmax-context = 2.5\nmax-concurrency = true\n'
        'api-key = ["secret", 3]\nkv-capacity = 1.5\n[engine]\ndevice = "cpu"\n'
    )
    with pytest.raises(NinferError) as found:
        read_config(write(tmp_path, text))
    assert found.value.exit_code == 1
    lines = str(found.value).splitlines()
    keys = ("max-contex", "port", "cors", "max-context", "max-concurrency", "api-key",
            "kv-capacity", "engine")  # fmt: skip
    assert len(lines) == len(keys)
    for line, key in zip(lines, keys, strict=True):
        assert line.startswith(f"{tmp_path / 'served.toml'}: {key}: option ")
    assert lines[0].endswith("did you mean max-context?")
    assert "secret" not in str(found.value)


def test_two_names_of_an_option_are_refused(tmp_path: Path):
    with pytest.raises(NinferError, match="given twice"):
        read_config(write(tmp_path, "cuda-graph = true\nno-cuda-graph = true"))


@pytest.mark.parametrize("text", ["port 80", "port = 1\nport = 2", "\x00"])
def test_a_file_that_is_not_toml_is_refused(tmp_path: Path, text: str):
    with pytest.raises(UsageError, match="not TOML"):
        read_config(write(tmp_path, text))


def test_a_missing_file_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="No such file"):
        read_config(tmp_path / "none.toml")


def test_one_artifact_is_wanted(tmp_path: Path):
    with pytest.raises(UsageError, match="no artifact"):
        gather(None, None, None, {})
    both = write(tmp_path, 'file = "a"\nsynthetic = "b"')
    with pytest.raises(UsageError, match="two artifacts"):
        gather(None, None, both, {})
    assert gather(None, "c", both, {}).synthetic == "c"
