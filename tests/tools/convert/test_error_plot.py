"""`ninfer verify --plot`: the picture, and everything that forbids one."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from builders.checkpoints import build_checkpoint
from builders.conversions import converted
from ninfer_formats import numeric_formats as nf
from ninfer_formats.errors import NinferError, UsageError
from ninfer_formats.inventories.parameters import Parameter
from ninfer_tools import verify_against
from ninfer_tools.convert.error_figures import ErrorSums
from ninfer_tools.convert.error_plot import _cut_panels, _draw, check_picture, draw_errors
from ninfer_tools.convert.verification import Comparison

UP, NORM, VISION = "text/layers/3/mlp/up", "text/final_norm", "vision/merger/fc1"


def parameter(name, role, layer):
    return Parameter(name, (4, 4), nf.BF16, name.partition("/")[0], (), role, layer, None)


PARAMETERS = {
    UP: parameter(UP, "mlp/up", 3),
    NORM: parameter(NORM, "final_norm", None),
    VISION: parameter(VISION, "merger/fc1", None),
}


def compare(name, format, error, bound=0.3):
    """Return a comparison with this relative error."""
    sums = ErrorSums()
    sums.count, sums.squares, sums.errors = 16, 1.0, error * error
    return Comparison(name, format, bound, 0.0, int(error != 0), sums)


def draw(compared):
    return _draw(_cut_panels(compared, PARAMETERS), "a.ninfer", "summary")


def spots(axes):
    """Return (x, y) of every drawn parameter of a panel."""
    return [tuple(map(float, at)) for group in axes.collections for at in group.get_offsets()]


def texts(figure):
    return [item.get_text() for ax in figure.axes for item in ax.texts]


def test_panels_hold_components_and_points_lie_at_layer_and_error():
    """V-137: a column of its own for what is in no layer; the scale is logarithmic."""
    figure = draw(
        [
            compare(UP, nf.NVFP4, 0.1),
            compare(NORM, nf.BF16, 0),
            compare(VISION, nf.Q8, 0.01, 0.0224),
        ]
    )
    text, vision = figure.axes
    assert text.get_yscale() == vision.get_yscale() == "log"
    assert [ax.get_title() for ax in figure.axes] == ["text\n1 equal", "vision\n0 equal"]
    assert spots(text) == [pytest.approx((3, 0.1))]
    assert spots(vision) == [pytest.approx((-1, 0.01))]


def test_bounds_are_marked_where_their_format_is():
    """V-137."""
    figure = draw([compare(UP, nf.NVFP4, 0.1), compare(VISION, nf.Q8, 0.01, 0.0224)])
    lines = [{float(np.asarray(line.get_ydata())[0]) for line in ax.lines} for ax in figure.axes]
    assert lines == [{0.3}, {0.0224}]
    assert texts(figure) == ["q8_g32_fp16: bound 0.0224", "nvfp4: bound 0.3"]


@pytest.mark.parametrize("error", [0.5, math.inf, math.nan])
def test_what_is_outside_its_bound_stands_out_and_stays_inside_the_picture(error):
    """V-137: also errors that no scale holds."""
    figure = draw([compare(UP, nf.NVFP4, error), compare(VISION, nf.Q8, 0.01, 0.0224)])
    (group,) = figure.axes[0].collections
    assert float(group.get_linewidths()[0]) == 2
    ((_, y),) = spots(figure.axes[0])
    low, high = figure.axes[0].get_ylim()
    assert low < y < high
    labels = [item.get_text() for item in figure.legends[0].get_texts()]
    assert "outside its bound" in labels


def test_equal_errors_of_one_layer_lie_side_by_side():
    """V-137."""
    names = [f"text/layers/3/mlp/{role}" for role in ("gate", "up", "down")]
    parameters = {n: parameter(n, n.removeprefix("text/layers/3/"), 3) for n in names}
    compared = [compare(name, nf.NVFP4, 0.1) for name in names]
    figure = _draw(_cut_panels(compared, parameters), "a", "b")
    x = sorted(at for at, _ in spots(figure.axes[0]))
    assert len(set(x)) == 3 and 2.5 < x[0] < x[-1] < 3.5


def test_artifact_without_any_error_has_a_picture_too(tmp_path):
    """V-137."""
    path = tmp_path / "a.png"
    draw_errors([compare(UP, nf.BF16, 0)], PARAMETERS, "a.ninfer", path)
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_equal_results_give_equal_pictures(tmp_path, suffix):
    """V-137: no date, no random names."""
    compared = [compare(UP, nf.NVFP4, 0.1), compare(VISION, nf.Q8, 0.01)]
    pictures = [tmp_path / f"{name}.{suffix}" for name in "ab"]
    for path in pictures:
        draw_errors(compared, PARAMETERS, "a.ninfer", path)
    first, second = (path.read_bytes() for path in pictures)
    assert first == second and len(first) > 5000


def verify(out, folder, **options):
    return verify_against.run(
        file=out, against=str(folder), sources=[], max_directory_bytes=1 << 28, json_output=False,
        **options,
    )  # fmt: skip


def test_command_draws_and_says_where(tmp_path, capsys):
    """V-137: and replaces a picture only when asked to."""
    folder, out = build_checkpoint().write(tmp_path / "m"), tmp_path / "a.ninfer"
    converted(folder, out)
    picture = tmp_path / "a.png"
    assert verify(out, folder, plot=picture) == 0
    assert f"picture: {picture}" in capsys.readouterr().out and picture.stat().st_size > 10_000
    with pytest.raises(NinferError, match="exist"):
        verify(out, folder, plot=picture)
    assert verify(out, folder, plot=picture, force=True) == 0
    assert sorted(p.suffix for p in tmp_path.iterdir() if p.is_file()) == [
        ".json",
        ".ninfer",
        ".png",
    ]


@pytest.mark.parametrize("name", ["a.bmp", "a", "none/a.png"])
def test_pictures_that_cannot_be_written_are_refused_first(tmp_path, name):
    """V-138: before anything is compared; the artifact does not even exist."""
    with pytest.raises(NinferError):
        verify(tmp_path / "none.ninfer", tmp_path, plot=tmp_path / name)


def test_missing_library_is_one_line_with_the_way_out(tmp_path, monkeypatch):
    """V-138."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError) as caught:
        check_picture(tmp_path / "a.png", force=False)
    assert "pip install 'ninfer[plot]'" in str(caught.value) and "\n" not in str(caught.value)
