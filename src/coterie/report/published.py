"""Published comparisons beside ours, from `stats.published`."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from coterie.report.terminal import VERDICT_STYLES
from coterie.stats.comparison import Comparison
from coterie.stats.published import Judged, Printed


def published_table(judged: Sequence[Judged]) -> Table:
    """One row a comparison: change, 95 % interval and verdict, ours over all published seeds and theirs as printed."""
    table = Table(header_style="bold", box=None, pad_edge=False)
    table.add_column("comparison", overflow="fold", ratio=1)
    table.add_column("ours: every seed", min_width=19)
    table.add_column("as published", min_width=16)
    last = ""
    for one in judged:
        if one.recipe != last:
            table.add_row(Text(one.recipe, "bold"), "", "")
            last = one.recipe
        by = "" if one.table == "arms" else f", {one.table}"
        table.add_row(Text(f"  {one.arm} − {one.baseline}{by}"), _ours(one.ours), _theirs(one.printed))
    return table


def published_lines(judged: Sequence[Judged]) -> list[str]:
    """One sentence a comparison, with the seeds that would settle it."""
    return [f"{one.recipe}: {one.row()['sentence']}" for one in judged]


def _ours(ours: Comparison) -> Text:
    size = 3 if abs(ours.delta) < 10 else 1
    lines = [f"{ours.delta:+,.{size}f}", *([] if ours.interval is None else [_interval(ours.interval)])]
    return Text("\n".join(lines) + "\n").append(ours.verdict, VERDICT_STYLES[ours.verdict])


def _theirs(printed: Printed | None) -> Text:
    if printed is None:
        return Text("–")
    return Text(
        "\n".join([f"{printed.delta:+.3f}", *([_interval(printed.interval)] if printed.interval else []), printed.verdict or ""])
    )


def _interval(ends: tuple[float, float]) -> str:
    return f"{ends[0]:+.3f} to {ends[1]:+.3f}"
