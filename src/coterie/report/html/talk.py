"""What the talk did, as figures: a row for each measure and arm, every seed a mark."""

from collections.abc import Sequence

from coterie.report.html import tables
from coterie.report.html.plot import Plot, in_rows, looks
from coterie.report.html.rows import Row
from coterie.report.html.tables import Table, shown
from coterie.report.results import Results, arm_mean, arm_names, dig, number, runs
from coterie.report.terminal import MEASURES, cast_name, casts, others

Path = tuple[str, tuple[str, ...], str]
"""A measure: its heading, where it is in a run, and what it means."""

MEANINGS = {
    "shared": "of a seat's private numbers, the share that its messages say",
    "used": "of the numbers that only others hold, the share that a seat's final message says",
    "unheard": "share of messages with a number that their seat was never given",
    "asked": "share of seats whose first message has a question mark",
    "agree": "share of conversations whose final messages give one answer",
    "talks": "share of replies in which several speakers talk",
    "note_score": "mean score of the answers in notes",
    "vote_score": "score of the vote among notes",
    "rescued": "share of readers that are right where their own note was wrong",
    "misled": "share of readers that are wrong where their own note was right",
    "first_score": "mean score of first answers",
    "mended": "share of wrong first answers that the last mends",
    "spoiled": "share of right first answers that the last spoils",
}


def talk(results: Results, off: str | None = None) -> list[Plot]:
    """Measures of talk, held against the arm `off` whose messages are not delivered (where there is none, against the baseline);
    scores with strangers and under other protocols, against the baseline."""
    paths: list[Path] = [(head, ("measures", key), MEANINGS.get(key, "")) for key, head in MEASURES.items()]
    with_others: list[Path] = [
        (cast_name(cast), ("cross_play", cast, "score"), "score with this player in the seat") for cast in casts(results)
    ]
    with_others += [(f"as {name}", ("also", name, "score"), "score under this protocol") for name in others(results)]
    reward, baseline = str(results.get("metric", "score")), str(results.get("baseline", ""))
    found = [
        _measures(results, off or baseline, "talk", "Measures of talk", "share", paths),
        _measures(results, baseline, "strangers", "With other players and protocols", reward, with_others),
    ]
    return [plot for plot in found if plot]


def over_chance(results: Results) -> list[Plot]:
    """Measures of talk less those of the same seed with the channel off (`checks.over_chance`): what is no habit and no guess."""
    colours, shapes = looks(results)
    rows, pairs, offs = [], [], []
    for arm, found in (results.get("over_chance") or {}).items():
        offs.append(str(found["off"]))
        for name, of in found["measures"].items():
            seeds = {int(seed): gap for seed, value in of["by_seed"].items() if (gap := number(value)) is not None}
            low, high, middle = number(of.get("low")), number(of.get("high")), number(of["mean"])
            interval = (low, high) if low is not None and high is not None else None
            note = shown(middle, sign=True) + (f" [{low:+.3f}, {high:+.3f}]" if interval else "")
            look = colours.get(arm, "base"), shapes.get(arm, "circle")
            meaning = f"{name}: {MEANINGS[name]}" if name in MEANINGS else name
            facts = {"arm": arm, "measure": name}
            rows.append(Row(f"{arm} − {found['off']}", *look, seeds, middle, interval, note=note, group=meaning, facts=facts))
            pairs.append((f"{name}, {arm} − {found['off']}", seeds, None))
    if not rows:
        return []
    order = list(dict.fromkeys(row.group for row in rows))
    rows.sort(key=lambda row: order.index(row.group))  # measures together, in the order of the first arm
    above = [row for row in rows if row.interval and row.interval[0] > 0]
    off = " and ".join(dict.fromkeys(offs))
    title = f"Above {off}, where no message arrives: {len(above)} of {len(rows)} measures of talk, by their intervals"
    note = "Small marks: one training seed each, with its number. Bar and line: their mean and its 95 % interval over seeds."
    return [
        Plot("over-chance", title, note, in_rows(rows, "difference in share", True), tables.by_seed("measure", pairs, sign=True))
    ]


def specialties(results: Results) -> list[Plot]:
    """Of runs that are swarms: held-out scores on the tasks of each specialty."""
    every = [run for arm in arm_names(results) for run in runs(results, arm).values()]
    names = dict.fromkeys(name for run in every for name in run.get("specialties") or {})
    paths: list[Path] = [(name, ("specialties", name), "") for name in names]
    plot = _measures(results, str(results.get("baseline", "")), "specialties", "By specialty", "held-out score", paths)
    return [plot] if plot else []


def _measures(results: Results, against: str, id: str, heading: str, unit: str, paths: Sequence[Path]) -> Plot | None:
    """A row for each measure and arm; the mean also less that of the arm `against`."""
    colours, shapes = looks(results)
    rows, body, gaps = [], [], []
    for head, path, meaning in paths:
        low = arm_mean(results, against, *path)
        for arm in arm_names(results):
            seeds = {seed: value for seed, run in runs(results, arm).items() if (value := dig(run, *path)) is not None}
            if not seeds:
                continue
            middle = sum(seeds.values()) / len(seeds)
            before = arm_mean(results, arm, "before", *path) if path[0] == "measures" else None
            gap = middle - low if low is not None and arm != against else None
            if gap is not None:
                gaps.append((abs(gap), head, arm, middle, low))
            note = f"{middle:.2f}" + (f" ({gap:+.2f})" if gap is not None else "")
            group = f"{head}: {meaning}" if meaning else head
            facts = {"arm": arm, "measure": head}
            look = colours[arm], shapes[arm]
            rows.append(Row(tables.named(results, arm), *look, seeds, middle, None, before, note, group, facts))
            each = ", ".join(f"{seed}: {value:.3f}" for seed, value in seeds.items())
            body.append([head, tables.named(results, arm), shown(middle), shown(gap, sign=True), shown(before), each])
    if not rows:
        return None
    title = heading
    if gaps:
        _, head, arm, middle, low = max(gaps)
        most = f"{head} differs most from {against} ({middle:.2f} in {arm}, {low:.2f} in {against})"
        title = f"{heading}: {most if middle != low else f'none differs from {against}'}"
    note = f"Small marks: one training seed each, with its number. Bar: their mean; in brackets less that of {against}."
    note += " Dashed: before training." if any(row.reference is not None for row in rows) else ""
    table = Table(["measure", "arm", "mean", f"less {against}", "before training", "each seed"], body)
    return Plot(id, title, note, in_rows(rows, unit), table)
