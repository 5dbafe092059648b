"""A picture of a verification: relative error by layer and role, with the bounds (rule V-137)."""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ninfer_formats import numeric_formats as nf
from ninfer_formats.errors import NinferError, UsageError
from ninfer_formats.inventories.parameters import Parameter
from ninfer_formats.output_target import refuse_occupied, resolve_target
from ninfer_tools.convert.verification import Comparison
from ninfer_tools.convert.whole_file import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

SUFFIXES = (".png", ".svg", ".pdf")
_INSTALL = "pip install 'ninfer[plot]'"
# Colours tell roles apart, markers formats. Roles of one family share a colour map.
_FAMILIES = {"attention": "Blues", "gdn": "Greens", "mlp": "Oranges", "moe": "Oranges"}
_OTHER_FAMILY = "Purples"
_MARKERS = {
    nf.NVFP4: "o", nf.FP8: "s", nf.Q4: "v", nf.Q5: "<", nf.Q6: ">", nf.Q8: "^",
    nf.BF16: "D", nf.FP32: "P",
}  # fmt: skip
_NO_LAYER = -1
# Labels of bounds keep this distance, as a share of the height.
_LABEL_GAP = 0.04
_INK, _FAINT, _ALARM = "0.15", "0.6", "#d62728"


@dataclass(frozen=True)
class _Point:
    """One parameter that differs from its source."""

    layer: int
    role: str
    item: Comparison


@dataclass(frozen=True)
class _Panel:
    """One component: its points, and how many of its parameters are equal bit for bit."""

    name: str
    points: Sequence[_Point]
    equal: int

    @property
    def layers(self) -> int:
        return max((point.layer for point in self.points), default=0) + 1


def check_picture(path: Path, force: bool) -> None:
    """Refuse a picture that could not be drawn or written, before the work of comparing."""
    if path.suffix.lower() not in SUFFIXES:
        want = ", ".join(SUFFIXES)
        raise UsageError("--plot knows no such kind of picture", got=path.name, want=want)
    refuse_occupied(resolve_target(path, {path.name: 0}, force=force))
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise UsageError("--plot needs matplotlib", remedy=_INSTALL) from None


def draw_errors(
    compared: Sequence[Comparison], parameters: Mapping[str, Parameter], title: str, path: Path
) -> None:
    """Write a picture of `compared` to `path`; `parameters` tells layer and role by name."""
    from matplotlib import rc_context

    figure = _draw(_cut_panels(compared, parameters), title, _summarise(compared))
    data = io.BytesIO()
    # Without dates and random names, equal results give equal pictures.
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower())
    with rc_context({"svg.hashsalt": "ninfer"}):
        figure.savefig(data, format=path.suffix.lower()[1:], dpi=120, metadata=metadata)
    try:
        write_whole(path, data.getvalue())
    except OSError as error:
        raise NinferError(f"cannot write the picture: {error.strerror}", path=path) from None


def _cut_panels(
    compared: Sequence[Comparison], parameters: Mapping[str, Parameter]
) -> list[_Panel]:
    points: dict[str, list[_Point]] = {}
    equal: Counter[str] = Counter()
    for item in compared:
        p = parameters[item.parameter]
        found = points.setdefault(p.residency, [])
        equal[p.residency] += not item.unequal
        if item.unequal:
            role = p.role.replace("/{}", "")
            found.append(_Point(_NO_LAYER if p.layer is None else p.layer, role, item))
    return [_Panel(name, found, equal[name]) for name, found in points.items()]


def _summarise(compared: Sequence[Comparison]) -> str:
    formats = Counter(item.format for item in compared)
    outside = sum(not item.within for item in compared)
    equal = sum(not item.unequal for item in compared)
    counts = ", ".join(f"{count:,} {format}" for format, count in formats.most_common())
    verdict = f"{outside:,} outside their bound" if outside else "all within their bounds"
    return f"{counts}; {equal:,} equal bit for bit; {verdict}"


def _draw(panels: Sequence[_Panel], title: str, summary: str) -> Figure:
    from matplotlib.figure import Figure

    widths = [max(panel.layers + 1, 4) ** 0.7 for panel in panels]
    figure = Figure(figsize=(15, 8), layout="constrained")
    axes = figure.subplots(
        1, len(panels), sharey=True, squeeze=False, gridspec_kw={"width_ratios": widths}
    )[0]
    low, high = _choose_range([point for panel in panels for point in panel.points])
    colours = _choose_colours([point.role for panel in panels for point in panel.points])
    for ax, panel in zip(axes, panels, strict=True):
        ax.set_yscale("log")
        ax.set_ylim(low, high)
        _draw_panel(ax, panel, colours, (low, high))
    axes[0].set_ylabel("relative error  ‖stored − source‖ / ‖source‖")
    _label_bounds(axes[-1], panels)
    figure.suptitle(f"{title}\n", color=_INK, fontsize=13, fontweight="bold")
    figure.text(0.5, 0.955, summary, ha="center", va="center", color=_INK, fontsize=9)
    _add_legend(figure, panels, colours)
    return figure


def _choose_range(points: Sequence[_Point]) -> tuple[float, float]:
    values = [v for point in points for v in (point.item.sums.relative, point.item.bound)]
    usable = [value for value in values if 0 < value < math.inf]
    low, high = min(usable, default=1e-3), max(usable, default=1.0)
    return low / 2, high * 2


def _choose_colours(roles: Sequence[str]) -> dict[str, Any]:
    """Return a colour per role: a shade of its family's map, in order of first appearance."""
    from matplotlib import colormaps

    families: dict[str, list[str]] = {}
    for role in dict.fromkeys(roles):
        name = _FAMILIES.get(role.partition("/")[0], _OTHER_FAMILY)
        families.setdefault(name, []).append(role)
    return {
        role: colormaps[name](0.4 + 0.55 * (i + 0.5) / len(members))
        for name, members in families.items()
        for i, role in enumerate(members)
    }


def _draw_panel(
    ax: Axes, panel: _Panel, colours: Mapping[str, Any], limits: tuple[float, float]
) -> None:
    ax.set_title(f"{panel.name}\n{panel.equal:,} equal", fontsize=10, color=_INK)
    ax.set_xlabel("layer (–: none)")
    ax.set_xlim(_NO_LAYER - 0.6, panel.layers - 0.4)
    step = max(1, panel.layers // 12)
    shown = range(0, panel.layers, step)
    ax.set_xticks([_NO_LAYER, *shown], ["–", *map(str, shown)])
    ax.grid(axis="y", color="0.9")
    ax.set_axisbelow(True)
    for bound in {point.item.bound for point in panel.points} - {0.0}:
        ax.axhline(bound, color=_FAINT, linestyle="--", linewidth=0.9, zorder=1)
    size = min(34.0, max(9.0, 900 / max(panel.layers, 1)))
    places = _spread_roles(panel.points)
    groups: dict[tuple[str, str], list[_Point]] = {}
    for point in panel.points:
        groups.setdefault((point.role, point.item.format), []).append(point)
    for (role, format), members in groups.items():
        inside = [point.item.within for point in members]
        ax.scatter(
            [places[point.layer, role] for point in members],
            [_clip(point.item.sums.relative, limits) for point in members],
            s=size, marker=_MARKERS.get(format, "o"), color=[colours[role]],
            edgecolors=[_INK if ok else _ALARM for ok in inside],
            linewidths=[0.3 if ok else 2.0 for ok in inside], zorder=3,
        )  # fmt: skip


def _spread_roles(points: Sequence[_Point]) -> dict[tuple[int, str], float]:
    """Return where every role of every layer stands, so that equal errors lie side by side."""
    layers: dict[int, set[str]] = {}
    for point in points:
        layers.setdefault(point.layer, set()).add(point.role)
    return {
        (layer, role): layer + 0.8 * ((i + 0.5) / len(roles) - 0.5)
        for layer, roles in layers.items()
        for i, role in enumerate(sorted(roles))
    }


def _clip(value: float, limits: tuple[float, float]) -> float:
    low, high = limits[0] * 1.1, limits[1] / 1.1
    return high if math.isnan(value) else min(max(value, low), high)


def _label_bounds(ax: Axes, panels: Sequence[_Panel]) -> None:
    """Write the bounds beside the last panel, moved apart where they lie close together."""
    bounds: dict[float, list[str]] = {}
    for item in (point.item for panel in panels for point in panel.points):
        if item.bound and item.format not in bounds.setdefault(item.bound, []):
            bounds[item.bound].append(item.format)
    low, high = (math.log(limit) for limit in ax.get_ylim())
    at = -1.0
    for bound in sorted(bounds):
        share = (math.log(bound) - low) / (high - low)
        at = max(share, at + _LABEL_GAP)
        ax.annotate(
            f"{', '.join(bounds[bound])}: bound {bound:.3g}",
            xy=(1, share), xytext=(1.04, at), xycoords="axes fraction", va="center",
            fontsize=8, color=_INK, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": _FAINT, "linewidth": 0.8},
        )  # fmt: skip


def _add_legend(figure: Figure, panels: Sequence[_Panel], colours: Mapping[str, Any]) -> None:
    points = [point for panel in panels for point in panel.points]
    formats = sorted({point.item.format for point in points})
    marks = [_mark(role, "o", colour) for role, colour in sorted(colours.items())]
    marks += [_mark(format, _MARKERS.get(format, "o"), "white", _INK) for format in formats]
    if any(not point.item.within for point in points):
        marks.append(_mark("outside its bound", "o", "white", _ALARM))
    if marks:
        figure.legend(handles=marks, loc="outside lower center", ncols=8, fontsize=8, frameon=False)


def _mark(label: str, marker: str, colour: Any, edge: Any = "none") -> Line2D:
    from matplotlib.lines import Line2D

    width = 2 if edge == _ALARM else 0.5
    return Line2D(
        [], [], linestyle="", marker=marker, color=colour, label=label, markeredgecolor=edge,
        markeredgewidth=width,
    )  # fmt: skip
