"""`--recipe`: what recipes can choose, and how their mistakes are told."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import numpy as np
import pytest

from builders.checkpoints import build_checkpoint
from builders.conversions import convert, converted, read_report
from ninfer_formats import numeric_formats as nf
from ninfer_formats.directory import A16_ONLY, ALLOW_A4, ALLOW_A8, INPUT_DIVISOR
from ninfer_formats.errors import UsageError
from ninfer_tools.convert.recipes.recipe_file import RecipeError, read_recipe

UP, DOWN, GATE = (f"text/layers/0/mlp/{role}" for role in ("up", "down", "gate"))
HEAD = "def configure(model, recipe, sources):\n"


def write_recipe(folder, *lines):
    path = folder / "mine.py"
    path.write_text(HEAD + "".join(f"    {line}\n" for line in lines))
    return path


def follow(tmp_path, *lines, form=None, tied=False, **options):
    """Convert a tiny checkpoint by a recipe of these lines."""
    folder = build_checkpoint(form=form, tied=tied).write(tmp_path / "m")
    recipe = write_recipe(tmp_path, *lines)
    return converted(folder, tmp_path / "a.ninfer", recipe=str(recipe), **options)


def fail(tmp_path, *lines, **options):
    """Return the error that the recipe ends in; nothing may be left."""
    folder = build_checkpoint().write(tmp_path / "m")
    recipe = write_recipe(tmp_path, *lines)
    with pytest.raises(RecipeError) as caught:
        convert(folder, tmp_path / "a.ninfer", recipe=str(recipe), **options)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m", "mine.py"]
    return caught.value


def format_of(artifact, name):
    return artifact.parameter(name).parts[0].tensor.format


def uses_of(artifact, name):
    return [use for use in artifact.uses if use.parameter == name]


def test_recipe_goes_before_the_profile_and_set_before_the_recipe(tmp_path):
    """V-80."""
    artifact = follow(
        tmp_path, f"recipe.assign(['{UP}', '{DOWN}'], format='q8')", rules=[f"{DOWN}=fp8"]
    )
    assert [format_of(artifact, n) for n in (UP, DOWN, GATE)] == [nf.Q8, nf.FP8, nf.NVFP4]
    objects = read_report(tmp_path / "a.ninfer")["objects"]
    assert [o["decided_by"] for o in objects if UP in o["parameters"]] == [["recipe"]]


def test_recipe_goes_before_stored_codes(tmp_path):
    """V-80 and V-83: also where the source is NVFP4 already; the same format keeps the codes."""
    artifact = follow(
        tmp_path, f"recipe.assign('{UP}', format='bf16')",
        f"recipe.assign('{DOWN}', format='nvfp4')", form="ct_nvfp4",
    )  # fmt: skip
    assert format_of(artifact, UP) == nf.BF16
    objects = read_report(tmp_path / "a.ninfer")["objects"]
    assert [o["method"] for o in objects if DOWN in o["parameters"]] == ["import"]


def test_another_function_of_the_file_can_be_named(tmp_path):
    """V-80."""
    path = tmp_path / "two.py"
    path.write_text(f"def other(m, r, s):\n    r.assign('{UP}', format='q4')\n")
    folder = build_checkpoint().write(tmp_path / "m")
    artifact = converted(folder, tmp_path / "a.ninfer", recipe=f"{path}:other")
    assert format_of(artifact, UP) == nf.Q4


def test_recipe_sees_parameters_config_and_components(tmp_path):
    """V-81: the asserts run inside the recipe."""
    follow(
        tmp_path,
        f"p = model.parameters['{UP}']",
        f"assert p.name == '{UP}' and len(p.shape) == 2 and p.projection and p.layer == 0",
        "assert p.inputs and p.format == 'nvfp4' and p.direct_format == 'bf16', p",
        "assert not model.parameters['text/final_norm'].projection",
        "assert 'text_config' in model.config and model.components[0] == 'text'",
        "assert sources['base'].endswith('m')",
    )


def test_missing_source_names_the_option(tmp_path):
    """V-81."""
    assert "--source dflash2=" in str(fail(tmp_path, "sources['dflash2']"))


def test_glob_reaches_direct_parameters_too(tmp_path):
    """V-82."""
    artifact = follow(tmp_path, "recipe.assign('text/layers/*/input_norm', format='fp32')")
    assert format_of(artifact, "text/layers/0/input_norm") == nf.FP32
    assert format_of(artifact, "text/final_norm") == nf.BF16


def test_later_calls_override_only_what_they_give(tmp_path):
    """V-83: q8 by the first call, policy by the second, fp8 by the third, policy still there."""
    artifact = follow(
        tmp_path,
        "recipe.assign('text/layers/0/mlp/*', format='q8')",
        f"recipe.assign('{UP}', activation_policy='AllowA8')",
        f"recipe.assign('{DOWN}', format='fp8', activation_policy='A16Only')",
        f"recipe.assign('{GATE}', format='nvfp4', method='absmax')",
    )
    assert [format_of(artifact, n) for n in (UP, DOWN, GATE)] == [nf.Q8, nf.FP8, nf.NVFP4]
    policies = [uses_of(artifact, n)[0].activation_policy for n in (UP, DOWN, GATE)]
    assert policies == [ALLOW_A8, A16_ONLY, A16_ONLY]


def test_method_survives_a_change_of_format_and_must_fit_it(tmp_path):
    """V-83."""
    error = fail(
        tmp_path,
        f"recipe.assign('{UP}', format='nvfp4', method='search')",
        f"recipe.assign('{UP}', format='q4')",
    )
    assert error.where == "line 3" and "search" in str(error)


def test_divisor_alone_allows_four_bit_activations(tmp_path):
    """V-84."""
    artifact = follow(
        tmp_path,
        f"site = model.parameters['{UP}'].inputs[0]",
        f"recipe.use('{UP}', site, activation_input_divisor=0.1)",
    )
    (use,) = uses_of(artifact, UP)
    assert use.activation_policy == ALLOW_A4
    id = use.auxiliaries[INPUT_DIVISOR].parts[0].object
    stored = bytes(artifact.payload_of(id))
    assert stored == np.array(0.1, "<f4").tobytes()
    assert uses_of(artifact, DOWN)[0].activation_policy == A16_ONLY
    assert not artifact.find_problems()


def test_policy_without_four_bits_drops_the_carried_divisor(tmp_path):
    """V-84."""
    line = f"recipe.assign('{UP}', activation_policy='A16Only')"
    artifact = follow(tmp_path, line, form="ct_nvfp4")
    (use,) = uses_of(artifact, UP)
    assert use.activation_policy == A16_ONLY and not use.auxiliaries


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (f"recipe.assign('{UP}', activation_policy='AllowA4')", "needs an activation_input"),
        (
            f"recipe.assign('{UP}', format='q4'); "
            f"recipe.use('{UP}', model.parameters['{UP}'].inputs[0], activation_input_divisor=1)",
            "belongs to nvfp4",
        ),
    ],
)
def test_policies_that_the_format_cannot_follow_are_refused(tmp_path, capsys, line, what):
    """V-84."""
    folder = build_checkpoint().write(tmp_path / "m")
    recipe = write_recipe(tmp_path, line)
    assert convert(folder, tmp_path / "a.ninfer", recipe=str(recipe)) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and what in lines[0] and UP in lines[0]


@pytest.mark.parametrize("tied", [False, True])
def test_shared_parameter_has_the_object_of_its_target(tmp_path, tied):
    """V-85."""
    line = "recipe.share('text/token_embedding', 'text/output_head')"
    artifact = follow(tmp_path, line, tied=tied)
    bindings = artifact.bindings
    assert bindings["text/token_embedding"] == bindings["text/output_head"]
    notices = read_report(tmp_path / "a.ninfer")["notices"]
    assert any("text/token_embedding takes the elements of" in n for n in notices)
    assert not artifact.find_problems()


def test_separate_parameter_has_an_object_of_its_own(tmp_path):
    """V-86."""
    artifact = follow(tmp_path, f"recipe.separate('{UP}')")
    objects = {n: artifact.bindings[n].parts[0].object for n in (UP, GATE)}
    assert objects[UP] != objects[GATE]
    other = [artifact.bindings[f"text/layers/1/mlp/{r}"].parts[0].object for r in ("up", "gate")]
    assert other[0] == other[1]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("raise SystemExit(0)", "SystemExit"),
        ("x = = 1", "SyntaxError"),
        ("recipe.assign('text/nothing/*', format='q4')", "reaches no parameter"),
        ("recipe.assign([], format='q4')", "no selector"),
        ("recipe.assign('text/final_norm')", "nothing to assign"),
        ("recipe.assign('text/final_norm', format='q4')", "holds matrices only"),
        ("recipe.assign('text/final_norm', format='q3')", "unknown format"),
        ("recipe.assign('text/final_norm', activation_policy='AllowA8')", "only projections"),
        (f"recipe.assign('{UP}', activation_policy='A4')", "unknown activation policy"),
        (f"recipe.use('{UP}', 'nowhere', activation_policy='AllowA8')", "no such input"),
        (f"recipe.use('{UP}', 'nowhere')", "nothing to set"),
        (
            f"recipe.use('{UP}', *model.parameters['{UP}'].inputs, activation_input_divisor=1e99)",
            "impossible activation_input_divisor",
        ),
        (f"recipe.share('{UP}', '{UP}')", "in a chain"),
        (f"recipe.share('{UP}', 'text/final_norm')", "one shape"),
        ("recipe.share('text/none', 'text/final_norm')", "no such parameter"),
    ],
)
def test_mistakes_name_file_and_line(tmp_path, line, what):
    """V-87, V-82 to V-86: the mistake is on line 3 of the file."""
    error = fail(tmp_path, "model.components", line)
    text = str(error)
    assert what in text and text.startswith(f"{tmp_path}/mine.py: line 3: ")
    assert "\n" not in text and error.exit_code == 2


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("mine.txt", "not understood"),
        ("mine.py:2x", "not understood"),
        ("/nowhere/mine.py", "cannot read"),
    ],
)
def test_recipes_that_cannot_be_read_are_refused(text, what):
    """V-87."""
    with pytest.raises(UsageError, match=what):
        read_recipe(text)


def test_missing_function_is_refused(tmp_path):
    """V-87."""
    path = tmp_path / "empty.py"
    path.write_text("")
    folder = build_checkpoint().write(tmp_path / "m")
    with pytest.raises(RecipeError, match="no such function"):
        convert(folder, tmp_path / "a.ninfer", recipe=str(path))


def test_artifact_and_report_record_the_recipe(tmp_path):
    """V-88: the directory has no folder in it."""
    artifact = follow(tmp_path, f"recipe.assign('{UP}', format='q8')")
    path = tmp_path / "mine.py"
    want = {
        "file": "mine.py",
        "function": "configure",
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
    assert artifact.provenance["recipe"] == want
    assert read_report(tmp_path / "a.ninfer")["recipe"] == {**want, "path": str(path)}


@pytest.mark.parametrize("debug", [False, True])
def test_command_line_shows_tracebacks_only_when_asked(tmp_path, debug):
    """V-87."""
    folder = build_checkpoint().write(tmp_path / "m")
    recipe = write_recipe(tmp_path, "1 / 0")
    call = [sys.executable, "-m", "ninfer_tools", *["--debug"][: int(debug)], "convert"]
    call += [str(folder), "--out", str(tmp_path / "a.ninfer"), "--recipe", str(recipe)]
    done = subprocess.run([*call, "--dry-run"], capture_output=True, text=True, check=False)
    lines = done.stderr.splitlines()
    assert done.returncode == 2 and not done.stdout
    assert lines[-1] == f"{recipe}: line 2: ZeroDivisionError: division by zero"
    assert ("Traceback (most recent call last):" in lines) == debug
    assert debug or len(lines) == 1
