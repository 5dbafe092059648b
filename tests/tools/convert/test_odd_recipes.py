"""Recipes that would silently do nothing, end themselves oddly, or fail half-way."""

from __future__ import annotations

import pytest

from builders.checkpoints import build_checkpoint
from builders.conversions import convert
from ninfer_tools.convert.recipes.recipe_file import RecipeError

UP = "text/layers/0/mlp/up"
DIVISOR = f"def configure(m, r, s):\n    r.use('{UP}', m.parameters['{UP}'].inputs[0], "


def refuse(tmp_path, text, **options):
    """Return the message of the error that the recipe ends in; nothing may be left."""
    folder = build_checkpoint().write(tmp_path / "m")
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(RecipeError) as caught:
        convert(folder, tmp_path / "a.ninfer", recipe=str(path), **options)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m", "mine.py"]
    return str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "async def configure(m, r, s):\n    pass\n",
        "def configure(m, r, s):\n    yield\n",
        "async def configure(m, r, s):\n    yield\n",
    ],
)
def test_function_that_would_not_run_is_refused(tmp_path, text, recwarn):
    """V-177."""
    assert "the function is async or a generator" in refuse(tmp_path, text)
    assert [str(w.message) for w in recwarn if "awaited" in str(w.message)] == []


@pytest.mark.parametrize("name", ["GeneratorExit", "BaseException", "SystemExit"])
def test_whatever_a_recipe_raises_is_one_line(tmp_path, name):
    """V-177."""
    told = refuse(tmp_path, f"def configure(m, r, s):\n    raise {name}('x')\n")
    assert told.endswith(f"mine.py: line 2: {name}: x")


@pytest.mark.parametrize("value", ["'3'", "True", "None or '2'", "b'3'", "[3]"])
def test_divisor_that_is_no_number_is_refused(tmp_path, value):
    """V-177."""
    text = DIVISOR + f"activation_input_divisor={value})\n"
    assert "divisor is no number" in refuse(tmp_path, text)


@pytest.mark.parametrize("name", ["ValueError", "GeneratorExit"])
def test_function_that_fails_while_encoding_leaves_nothing(tmp_path, name):
    """V-175 and V-177: no work folder, because the same recipe would fail again."""
    text = (
        f"def rows(block):\n    raise {name}('half-way')\n"
        f"def configure(m, r, s):\n    r.assign('{UP}', format='q4', method=rows)\n"
    )
    told = refuse(tmp_path, text)
    assert f"line 2, {UP}: {name}: half-way" in told
