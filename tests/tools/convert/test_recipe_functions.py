"""Functions of a recipe that compute rows, and groups: what they can do and how they fail."""

from __future__ import annotations

import numpy as np
import pytest

from builders.checkpoints import build_checkpoint
from builders.conversions import convert, converted, read_report
from ninfer_formats import numeric_formats as nf
from ninfer_formats.tensors import import_words
from ninfer_tools.convert.recipes.recipe_file import RecipeError

UP, DOWN, GATE = (f"text/layers/0/mlp/{role}" for role in ("up", "down", "gate"))
PREFACE = "import numpy as np\n"
HALVE = "def halve(block):\n    return block.values * 0.5\n"


def follow(tmp_path, text, *lines, form=None, tied=False, name="a", **options):
    """Convert by a recipe of functions and the lines of `configure`."""
    folder = build_checkpoint(form=form, tied=tied).write(tmp_path / "m")
    recipe = write(tmp_path, text, *lines)
    return converted(folder, tmp_path / f"{name}.ninfer", recipe=str(recipe), **options)


def write(tmp_path, text, *lines):
    path = tmp_path / "mine.py"
    body = "".join(f"    {line}\n" for line in lines)
    path.write_text(f"{PREFACE}{text}\ndef configure(model, recipe, sources):\n{body}")
    return path


def fail(tmp_path, text, *lines):
    folder = build_checkpoint().write(tmp_path / "m")
    recipe = write(tmp_path, text, *lines)
    with pytest.raises(RecipeError) as caught:
        convert(folder, tmp_path / "a.ninfer", recipe=str(recipe))
    assert not (tmp_path / "a.ninfer").exists()
    return str(caught.value)


def source_of(name):
    return build_checkpoint().values[name]


def test_function_computes_the_values_that_are_encoded(tmp_path):
    """V-129: bf16 holds the halves exactly, and other parameters keep their values."""
    artifact = follow(
        tmp_path, HALVE, f"recipe.assign('{UP}', format='bf16', method=halve)",
        f"recipe.assign('{DOWN}', format='bf16')",
    )  # fmt: skip
    assert np.array_equal(artifact.parameter(UP).decode(), source_of(UP) * 0.5)
    assert np.array_equal(artifact.parameter(DOWN).decode(), source_of(DOWN))
    assert not artifact.find_problems()


def test_function_sees_rows_parameter_and_any_other_rows(tmp_path):
    """V-129: the asserts run inside the recipe; the block is a copy that may be changed."""
    text = (
        "def look(block):\n"
        f"    assert block.parameter.name == '{UP}' and block.parameter.format == 'bf16'\n"
        "    assert block.values.shape == (block.end - block.begin, 128), block.values.shape\n"
        "    again = block.read(block.begin, block.end)\n"
        "    assert np.array_equal(again, block.values) and again.dtype == np.float32\n"
        "    block.values[:] = 1\n"
        "    return again\n"
    )
    artifact = follow(tmp_path, text, f"recipe.assign('{UP}', format='bf16', method=look)")
    assert np.array_equal(artifact.parameter(UP).decode(), source_of(UP))


def test_values_are_encoded_also_where_codes_of_that_format_are_stored(tmp_path):
    """V-129: nvfp4 from nvfp4, but not the stored codes."""
    text = "def nothing(block):\n    return np.zeros_like(block.values)\n"
    line = f"recipe.assign('{UP}', method=nothing)"
    artifact = follow(tmp_path, text, line, form="ct_nvfp4")
    assert artifact.parameter(UP).parts[0].tensor.format == nf.NVFP4
    assert not artifact.parameter(UP).decode().any()
    assert artifact.parameter(DOWN).decode().any()


CODES = {
    nf.Q4: "(codes := np.tile(np.arange(-8, 8), (n, k // 16)).astype(np.int8), "
    "np.full((n, k // 64), 0x3C00, np.uint16))",
    nf.Q8: "(np.full((n, k), -1, np.int8), np.full((n, k // 32), 0x3800, np.uint16))",
    nf.FP8: "(np.full((n, k), 0x38, np.uint8), np.full(n, 0x4040, np.uint16))",
    nf.NVFP4: "(np.full((n, k // 2), 0x21, np.uint8), np.full((n, k // 16), 0x38, np.uint8), 0.5)",
}
VALUES = {
    nf.Q4: np.tile(np.arange(-8, 8), 8),
    nf.Q8: np.full(128, -0.5),
    nf.FP8: np.full(128, 3.0),
    nf.NVFP4: np.tile([1.0, 2.0], 64),
}


@pytest.mark.parametrize("format", CODES)
def test_codes_of_a_function_are_stored_as_they_are(tmp_path, format):
    """V-130: scales 1, 1/2, 3 and 1; NVFP4 codes 1 and 2 are 0.5 and 1, the divisor is 1/2."""
    text = f"def make(block):\n    n, k = block.values.shape\n    return {CODES[format]}\n"
    artifact = follow(tmp_path, text, f"recipe.assign('{UP}', format='{format}', codes=make)")
    found = artifact.parameter(UP)
    assert found.parts[0].tensor.format == format
    assert np.array_equal(found.decode(), np.broadcast_to(VALUES[format], (192, 128)))
    objects = read_report(tmp_path / "a.ninfer")["objects"]
    (item,) = [item for item in objects if UP in item["parameters"]]
    assert item["decided_by"] == ["recipe: make"] and not item["exact"] and not item["errors"]
    # The same words through the library that writes artifacts.
    space = {"np": np, "n": 192, "k": 128}
    words = eval(CODES[format], space)
    assert bytes(artifact.payload_of(found.parts[0].tensor.id)) == bytes(
        import_words(format, (192, 128), *words)
    )


def test_set_takes_a_parameter_away_from_its_function(tmp_path):
    """V-131: the source's own codes come back."""
    options = {"rules": [f"{UP}=bf16"]}
    artifact = follow(tmp_path, HALVE, f"recipe.assign('{UP}', method=halve)", **options)
    assert np.array_equal(artifact.parameter(UP).decode(), source_of(UP))


def test_changing_the_format_keeps_the_function_and_a_method_replaces_it(tmp_path):
    """V-129 and V-83."""
    artifact = follow(
        tmp_path, HALVE, f"recipe.assign(['{UP}', '{DOWN}'], format='q8', method=halve)",
        f"recipe.assign('{UP}', format='bf16')", f"recipe.assign('{DOWN}', method='absmax')",
    )  # fmt: skip
    assert np.array_equal(artifact.parameter(UP).decode(), source_of(UP) * 0.5)
    down = artifact.parameter(DOWN).decode()
    assert np.abs(down - source_of(DOWN)).max() < 0.02 * np.abs(source_of(DOWN)).max()


def test_tied_head_is_stored_by_itself_when_only_one_of_the_two_is_computed(tmp_path):
    """V-131."""
    line = "recipe.assign('text/token_embedding', format='bf16', method=halve)"
    artifact = follow(
        tmp_path, HALVE, line, "recipe.assign('text/output_head', format='bf16')", tied=True
    )
    head, embedding = (artifact.parameter(f"text/{n}") for n in ("output_head", "token_embedding"))
    assert np.array_equal(embedding.decode(), head.decode() * 0.5) and head.decode().any()


def test_code_that_computes_rows_decides_the_artifact_id(tmp_path):
    """V-131: equal formats and inputs, another function."""
    ids = []
    for name, text in (("a", HALVE), ("b", HALVE.replace("0.5", "0.25"))):
        follow(tmp_path, text, f"recipe.assign('{UP}', method=halve)", name=name)
        ids.append((tmp_path / f"{name}.ninfer").read_bytes()[16:32])
    assert ids[0] != ids[1]


def test_notice_says_what_was_computed(tmp_path):
    """V-131."""
    follow(tmp_path, HALVE, f"recipe.assign(['{UP}', '{DOWN}'], method=halve)")
    notices = read_report(tmp_path / "a.ninfer")["notices"]
    assert any("the recipe computes (halve): 2;" in notice for notice in notices)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("raise SystemExit(0)", "SystemExit"),
        ("return None", "computed rows do not fit"),
        ("return block.values[:, :5]", "computed rows do not fit"),
        ("return block.values.astype(str)", "computed rows do not fit"),
        ("return block.values * np.nan", "NaN or infinity"),
        ("return block.values.astype(np.float64) * 1e300", "NaN or infinity"),
        ("return block.read(0, 10**9)", "rows are outside the parameter"),
        ("return [[1, 2], [3]]", "ValueError"),
        ("raise type('Bad', (Exception,), {'__str__': lambda e: e.x})()", "Bad: (it cannot"),
        (r"raise ValueError('two\nlines')", "ValueError: two lines"),
    ],
)
def test_mistakes_of_a_value_function_are_one_line(tmp_path, body, what):
    """V-132: with the parameter's name, and nothing is left at the target."""
    text = fail(
        tmp_path,
        f"def bad(block):\n    {body}\n",
        f"recipe.assign('{UP}', format='q4', method=bad)",
    )
    assert what in text and UP in text and text.startswith(f"{tmp_path}/mine.py: ")
    assert "\n" not in text


@pytest.mark.parametrize(
    ("format", "body", "what"),
    [
        ("q4", "return block.values", "computed codes do not fit"),
        ("q4", "return (1, 2, 3, 4)", "computed codes do not fit"),
        ("q4", "return block.values, block.values", "codes do not fit"),
        ("q4", CODES[nf.Q4].replace("-8, 8", "0, 16").join(("return ", "")), "code outside -8..7"),
        ("q8", CODES[nf.Q8].replace("0x3800", "0xFC00").join(("return ", "")), "sign"),
        ("nvfp4", CODES[nf.NVFP4].replace("0.5)", "0)").join(("return ", "")), "divisor"),
        (
            "nvfp4",
            CODES[nf.NVFP4].replace(", 0.5)", ")").join(("return ", "")),
            "needs its divisor",
        ),
        (
            "nvfp4",
            CODES[nf.NVFP4].replace("0.5)", "1 + block.end % 2 ** 7)").join(("return ", "")),
            "divisor is not that of the first rows",
        ),
    ],
)
def test_mistakes_of_a_code_function_are_one_line(tmp_path, format, body, what):
    """V-132."""
    text = f"def bad(block):\n    n, k = block.values.shape\n    {body}\n"
    line = fail(tmp_path, text, f"recipe.assign('{UP}', format='{format}', codes=bad)")
    assert what in line and UP in line and "\n" not in line


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (f"recipe.assign('{UP}', method=3)", "no function"),
        (f"recipe.assign('{UP}', method=len, codes=len)", "contradict each other"),
        (f"recipe.assign('{UP}', format='bf16', codes=len)", "no codes and scales"),
        ("recipe.assign('text/final_norm', format='q4', method=len)", "holds matrices only"),
        (f"recipe.assign('{UP}', method=len); recipe.share('{UP}', '{GATE}')", "computed and sha"),
        (f"recipe.group('{UP}')", "two members or more"),
        (f"recipe.group(['{UP}', '{DOWN}'])", "different widths"),
        ("recipe.group(['text/final_norm', 'mtp/final_norm'])", "different components"),
        (f"[recipe.group(['{UP}', '{GATE}']) for _ in '12']", "in two groups"),
        (f"recipe.group(['{UP}', '{GATE}']); recipe.separate('{UP}')", "grouped and separate"),
        (f"recipe.group(['{UP}', '{GATE}']); recipe.share('{UP}', '{GATE}')", "grouped and shares"),
    ],
)
def test_choices_that_cannot_be_followed_are_refused(tmp_path, line, what):
    """V-128, V-130 and V-132."""
    assert what in fail(tmp_path, "", line)


def test_group_lies_in_one_tensor_in_the_order_given(tmp_path):
    """V-128: rows of up, then of another layer's gate; up's own group is gone."""
    other = "text/layers/1/mlp/gate"
    line = f"recipe.group(['{UP}', '{other}'])"
    artifact = follow(tmp_path, "", line, profile="bf16")
    parts = [artifact.bindings[name].parts[0] for name in (UP, other, GATE)]
    assert parts[0].object == parts[1].object != parts[2].object
    assert [(p.begin, p.end) for p in parts[:2]] == [(0, 192 * 128), (192 * 128, 384 * 128)]
    for name in (UP, other, GATE):
        assert np.array_equal(artifact.parameter(name).decode(), source_of(name))
    assert not artifact.find_problems()


def test_group_can_hold_vectors(tmp_path):
    """V-128."""
    names = ["text/layers/0/input_norm", "text/layers/1/input_norm", "text/final_norm"]
    artifact = follow(tmp_path, "", f"recipe.group({names})")
    assert len({artifact.bindings[name].parts[0].object for name in names}) == 1
    for name in names:
        assert np.array_equal(artifact.parameter(name).decode(), source_of(name))


@pytest.mark.parametrize(
    ("line", "form", "what"),
    [
        (f"recipe.assign('{UP}', format='q8')", None, "different formats"),
        (f"recipe.assign('{UP}', format='nvfp4', method='absmax')", None, "different methods"),
    ],
)
def test_group_of_unlike_members_is_refused(tmp_path, capsys, line, form, what):
    """V-128."""
    folder = build_checkpoint(form=form).write(tmp_path / "m")
    recipe = write(tmp_path, "", line, f"recipe.group(['{GATE}', '{UP}'])")
    assert convert(folder, tmp_path / "a.ninfer", recipe=str(recipe)) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and what in lines[0] and UP in lines[0]


def test_match_and_packing_groups_tell_names(tmp_path):
    """V-127: the asserts run inside the recipe."""
    follow(
        tmp_path, "",
        "found = recipe.match(['text/layers/*/mlp/up', 'text/final_norm'])",
        "want = tuple(f'text/layers/{n}/mlp/up' for n in (0, 1)) + ('text/final_norm',)",
        "assert found == want, found",
        f"assert ('{GATE}', '{UP}') in model.packing_groups, model.packing_groups",
        "assert all(len(group) > 1 for group in model.packing_groups)",
    )  # fmt: skip
