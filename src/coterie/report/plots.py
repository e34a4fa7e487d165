"""Learning curves with the held-out score of every seed beside them. matplotlib is imported when a figure is drawn, not before."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from coterie.report.results import Results, arm_mean, arm_names, curves, held_out_scores, mean

Curve = Sequence[tuple[int, float | None]]
Curves = Mapping[str, Mapping[int, Curve]]

BASELINE_COLOUR = "#5b5b5b"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito (2008), told apart with every common colour blindness; the baseline is grey."""

MOST_LABELLED = 8
"""Past this many seeds in an arm the held-out dots go without their seed, which could not be read."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def smooth(curve: Curve, window: int) -> list[tuple[int, float]]:
    """Trailing mean of the rewards at the last `window` points, gaps (None) left out; a point with nothing behind it is left out.

    Trailing, so that no point knows of a later step.
    """
    found = []
    for at in range(len(curve)):
        level = mean([reward for _, reward in curve[max(0, at + 1 - window) : at + 1]])
        if level is not None:
            found.append((curve[at][0], level))
    return found


def mean_curve(by_seed: Sequence[Sequence[tuple[int, float]]]) -> list[tuple[int, float]]:
    """The mean over seeds at each step that every seed has, so that a seed that stopped early does not bend the mean."""
    if not by_seed:
        return []
    tables = [dict(points) for points in by_seed]
    steps = sorted(set(tables[0]).intersection(*tables[1:]))
    return [(step, sum(table[step] for table in tables) / len(tables)) for step in steps]


def spread(heights: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Where to put labels: the heights moved as little as can be (least squares) to stand `gap` apart inside [low, high].

    With the gaps taken out, this is an isotonic regression. Labels that cannot all fit start at `low` and run past `high`.
    """
    from scipy.optimize import isotonic_regression

    if not heights:
        return []
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    level = isotonic_regression([heights[i] - rank * gap for rank, i in enumerate(order)]).x
    roof = max(low, high - (len(heights) - 1) * gap)
    placed = [0.0] * len(heights)
    for rank, i in enumerate(order):
        placed[i] = min(max(float(level[rank]), low), roof) + rank * gap
    return placed


def colours_of(arms: Sequence[str], baseline: str | None = None) -> dict[str, str]:
    """Arm to colour: grey for the baseline, then the colours in order, from the start again after the sixth."""
    others = [arm for arm in arms if arm != baseline]
    return {arm: BASELINE_COLOUR for arm in arms if arm == baseline} | {
        arm: COLOURS[i % len(COLOURS)] for i, arm in enumerate(others)
    }


def learning_curves(
    curves: Curves,
    path_png: str | Path,
    title: str,
    *,
    subtitle: str = "",
    held_out: Mapping[str, Mapping[int, float]] | None = None,
    untrained: Mapping[str, float] | None = None,
    baseline: str | None = None,
    window: int = 10,
    metric: str = "team reward",
    model: str = "",
    note: str = "",
) -> Path:
    """Draw one PNG of 1200 x 600 pixels and return its path; its folder is made if needed.

    Left: `curves`, arm to seed to `(step, reward)`; a thin line per seed, a thick one for the mean of an arm's seeds, both trailing
    means over `window` logged steps. Right, on the same scale, when `held_out` is given (arm to seed to score): a dot per seed with
    the seed beside it, a bar at the mean, and `untrained` (arm to score) as a dashed line. `note` ends the caption.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    arms = [*curves, *(arm for arm in held_out or () if arm not in curves)]
    colours = colours_of(arms, baseline)
    figure = Figure(figsize=(12, 6), dpi=100, facecolor="white")
    FigureCanvasAgg(figure)
    labels = 0.015 + 0.0088 * max((len(_short(arm)) for arm in curves), default=0)  # room for arm names right of the curves
    panel = min(0.45, 0.06 + 0.085 * len(held_out)) if held_out else 0.0
    left = figure.add_axes((0.055, 0.17, 0.93 - labels - panel, 0.63))
    top = _draw_curves(left, curves, colours, window)
    panels = [left]
    if held_out:
        right = figure.add_axes((0.985 - panel, 0.17, panel, 0.63))
        top = max(top, _draw_held_out(right, held_out, untrained or {}, colours))
        panels.append(right)
    limit = min(1.02, 1.08 * top) if top <= 1 else 1.08 * top
    for axes in panels:
        axes.set_ylim(0, limit or 1.0)
        _quiet(axes)
    _label_curves(left, curves, colours, window)
    if held_out:
        _label_seeds(panels[1], held_out, colours)
    left.set_xlabel("training step", fontsize=11)
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    left.set_title(f"{metric} while training", loc="left", fontsize=11, color="#333333")
    figure.text(0.055, 0.945, _plain(title), fontsize=16, fontweight="bold")
    figure.text(0.055, 0.932, _plain("\n".join(wrap(subtitle, 145))), fontsize=11, color="#333333", verticalalignment="top")
    figure.text(0.055, 0.035, _caption(curves, held_out, window, model, note), fontsize=10, color="#555555")
    path = Path(path_png)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None} if path.suffix == ".png" else None)
    return path


def draw_results(results: Results, path_png: str | Path, *, window: int = 10) -> Path | None:
    """`learning_curves` of a whole `results.json`; None, and no file, when it holds neither a curve nor a held-out score."""
    arms, lines = arm_names(results), curves(results)
    held_out = {arm: scores for arm in arms if (scores := held_out_scores(results, arm))}
    if not lines and not held_out:
        return None
    untrained = {arm: score for arm in arms if (score := arm_mean(results, arm, "before", "score")) is not None}
    return learning_curves(
        lines,
        path_png,
        str(results.get("title") or results.get("recipe", "")),
        subtitle=str(results.get("question") or ""),
        held_out=held_out,
        untrained=untrained,
        baseline=results.get("baseline"),
        window=window,
        metric=str(results.get("metric", "team reward")),
        model=str(results.get("model", "")),
    )


def _draw_curves(axes: Any, curves: Curves, colours: Mapping[str, str], window: int) -> float:
    top = 0.0
    for arm, by_seed in curves.items():
        lines = [smooth(curve, window) for curve in by_seed.values()]
        for line in filter(None, lines):
            axes.plot(*zip(*line, strict=True), color=colours[arm], linewidth=1, alpha=0.45)
            top = max(top, *(level for _, level in line))
        middle = mean_curve(lines)
        if middle:
            axes.plot(*zip(*middle, strict=True), color=colours[arm], linewidth=3, solid_capstyle="round")
    axes.margins(x=0)
    return top


def _label_curves(axes: Any, curves: Curves, colours: Mapping[str, str], window: int) -> None:
    ends = {}
    for arm, by_seed in curves.items():
        middle = mean_curve([smooth(curve, window) for curve in by_seed.values()])
        if middle:
            ends[arm] = middle[-1]
    low, high = axes.get_ylim()
    gap = 0.055 * (high - low)
    heights = spread([level for _, level in ends.values()], gap, low + gap / 4, high - gap / 4)
    for arm, height in zip(ends, heights, strict=True):
        axes.annotate(
            _short(arm),
            (1, height),
            xycoords=("axes fraction", "data"),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            color=colours[arm],
            fontsize=12,
            fontweight="bold",
            annotation_clip=False,
        )


def _draw_held_out(
    axes: Any, held_out: Mapping[str, Mapping[int, float]], untrained: Mapping[str, float], colours: Mapping[str, str]
) -> float:
    for at, (arm, scores) in enumerate(held_out.items()):
        colour, middle = colours[arm], sum(scores.values()) / len(scores)
        if arm in untrained:
            axes.plot([at - 0.42, at + 0.42], [untrained[arm]] * 2, color="black", linewidth=1.3, linestyle=(0, (4, 3)), zorder=1)
        axes.plot([at - 0.38, at - 0.16], [middle] * 2, color=colour, linewidth=3, zorder=2)
        marker = MARKERS[at % len(MARKERS)]
        across = [at + 0.06 * (rank % 3 - 1) for rank in range(len(scores))]  # aside by rank, so that equal scores stay visible
        axes.plot(across, sorted(scores.values()), marker, color=colour, markersize=8, markeredgecolor="white", zorder=3)
    axes.set_xlim(-0.55, len(held_out) - 0.45)
    axes.set_xticks(range(len(held_out)), ["\n".join(wrap(_short(arm), 10)) for arm in held_out])
    axes.tick_params(left=False, labelleft=False)
    axes.spines["left"].set_visible(False)
    heading = "held out: dot a seed, bar the mean" + (",\ndashed untrained" if untrained else "")
    axes.set_title(heading, loc="left", fontsize=11, color="#333333")
    return max([*untrained.values(), *(score for scores in held_out.values() for score in scores.values())], default=0.0)


def _label_seeds(axes: Any, held_out: Mapping[str, Mapping[int, float]], colours: Mapping[str, str]) -> None:
    from matplotlib.patheffects import withStroke

    low, high = axes.get_ylim()
    gap = 0.034 * (high - low)
    for at, (arm, scores) in enumerate(held_out.items()):
        if len(scores) > MOST_LABELLED:
            continue
        heights = spread(list(scores.values()), gap, low + gap / 2, high - gap / 2)
        for seed, height in zip(scores, heights, strict=True):
            halo = [withStroke(linewidth=3, foreground="white")]
            axes.text(at + 0.17, height, str(seed), fontsize=9, color=colours[arm], va="center", path_effects=halo, zorder=4)


def _quiet(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#999999")
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=10, color="#999999")


def _plain(text: str) -> str:
    return text.replace("$", r"\$")  # a dollar would start a formula


def _short(arm: str, most: int = 18) -> str:
    return _plain(arm if len(arm) <= most else arm[: most - 1] + "…")


def _caption(curves: Curves, held_out: Any, window: int, model: str, note: str) -> str:
    counts = sorted({len(by_seed) for by_seed in {**curves, **(held_out or {})}.values()})
    seeds = " or ".join(map(str, counts)) or "no"
    parts = [
        model,
        f"{seeds} training seed{'s' * (counts != [1])} in an arm (thin lines; thick: their mean)",
        f"each point the mean of the last {window} logged steps",
        note,
    ]
    return _plain(" · ".join(part for part in parts if part))
