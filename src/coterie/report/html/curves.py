"""Learning curves: a panel for each arm on one scale, a line for each seed with its number at its end, their mean bold."""

from collections.abc import Mapping, Sequence

from coterie.report.html.marks import Drawing, Line, Mark, Words
from coterie.report.html.rows import fit
from coterie.report.html.scales import Scale, linear, ticks, written
from coterie.report.plots import Curves, mean_curve, smooth, spread

PANEL = 200.0
LEFT, RIGHT, TOP, BOTTOM = 40.0, 30.0, 30.0, 22.0
LABEL_GAP = 10.5
Points = Sequence[tuple[int, float]]
Smooth = Mapping[str, Mapping[int, Points]]


def window_of(curves: Curves) -> int:
    """How many logged steps a point is the mean of: a tenth of the longest curve, at most ten."""
    longest = max((len(curve) for by_seed in curves.values() for curve in by_seed.values()), default=0)
    return max(1, min(10, longest // 10))


def smoothed(curves: Curves, window: int) -> dict[str, dict[int, list[tuple[int, float]]]]:
    return {arm: {seed: smooth(curve, window) for seed, curve in by_seed.items()} for arm, by_seed in curves.items()}


def curves_figure(curves: Smooth, colours: Mapping[str, str], width: float, unit: str, columns: int) -> Drawing:
    """`curves` are trailing means already (`smoothed`); an arm without points has no panel."""
    arms = [arm for arm in curves if any(curves[arm].values())]
    points = [point for arm in arms for curve in curves[arm].values() for point in curve]
    low, high = min([0.0, *(y for _, y in points if y is not None)]), max([y for _, y in points], default=1.0)
    top = high + 0.06 * ((high - low) or 1.0)
    first, last = min((x for x, _ in points), default=0), max((x for x, _ in points), default=1)
    columns = max(1, min(columns, len(arms)))
    across, panel = width / columns, PANEL
    marks: list[Mark] = [Words(6, 14, fit(f"{unit}, by training step", width, 12), "muted", 12)]
    rows = -(-len(arms) // columns)
    for index, arm in enumerate(arms):
        left, down = (index % columns) * across, 22 + (index // columns) * (panel + 12)
        x = linear(first, last if last > first else first + 1, left + LEFT, left + across - RIGHT)
        y = linear(low, top, down + panel - BOTTOM, down + TOP)
        marks += _axes(x, y, (first, last), (low, top), left, across, down)
        marks.append(Words(left + LEFT, down + 16, fit(arm, across - LEFT, 13), size=13, bold=True))
        marks += _lines(arm, curves[arm], colours[arm], x, y, (down + TOP, down + panel - BOTTOM))
    return Drawing(width, 22 + rows * (panel + 12), tuple(marks))


def _axes(
    x: Scale, y: Scale, steps: tuple[float, float], levels: tuple[float, float], left: float, across: float, down: float
) -> list[Mark]:
    marks: list[Mark] = []
    values = ticks(*levels, 5)
    for value in values:
        marks.append(Line(((left + LEFT, y(value)), (left + across - RIGHT, y(value))), "grid"))
        marks.append(Words(left + LEFT - 6, y(value) + 4, written(value, values), "muted", 10.5, "end"))
    floor = down + PANEL - BOTTOM
    marks.append(Line(((left + LEFT, floor), (left + across - RIGHT, floor)), "axis"))
    places = [value for value in ticks(*steps, 4) if value == int(value)]
    marks += [Words(x(value), floor + 15, f"{value:.0f}", "muted", 10.5, "middle") for value in places]
    return marks


def _lines(arm: str, by_seed: Mapping[int, Points], colour: str, x: Scale, y: Scale, ends: tuple[float, float]) -> list[Mark]:
    marks: list[Mark] = []
    there = {seed: curve for seed, curve in by_seed.items() if curve}
    for seed, curve in there.items():
        points = tuple((x(step), y(level)) for step, level in curve)
        marks.append(Line(points, colour, 1.2, opacity=0.6, facts={"mark": "curve", "arm": arm, "seed": str(seed)}))
    middle = mean_curve(list(there.values()))
    if middle:
        points = tuple((x(step), y(level)) for step, level in middle)
        marks.append(Line(points, colour, 3.2, facts={"mark": "mean-curve", "arm": arm}))
    if len(there) * LABEL_GAP <= ends[1] - ends[0]:
        heights = [y(curve[-1][1]) for curve in there.values()]
        for (seed, curve), height, aside in zip(there.items(), heights, spread(heights, LABEL_GAP, *ends), strict=True):
            end = x(curve[-1][0])
            marks.append(Line(((end, height), (end + 8, aside)), "axis", 0.8))
            marks.append(Words(end + 10, aside + 3.5, str(seed), "muted", 10))
    return marks
