"""Results in the terminal: every seed's score beside the mean, the comparisons, and the verdicts in plain words.

Text from a results file is shown as it stands: it is never read as rich markup.
"""

from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from coterie.report.results import Results, arm_mean, arm_names, dig, grading_errors, mean, number, runs, worst_cut

VERDICT_STYLES = {
    "moved": "bold green",
    "moved the wrong way": "bold red",
    "no change detected": "bold",
    "unresolved": "bold yellow",
}
"""Colour never stands alone: the word is always printed."""

MEASURES = {
    "shared": "shared",
    "used": "used",
    "asked": "asked",
    "agree": "agree",
    "talks": "talks",
    "note_score": "notes",
    "vote_score": "vote",
    "rescued": "rescued",
    "misled": "misled",
    "first_score": "first",
    "mended": "mended",
    "spoiled": "spoiled",
}
"""Shares in [0, 1]: key in `measures` to column heading. Which of them a run has is its protocol's matter."""


SWARM = {
    "cumulative_reward": "own reward",
    "training_reward": "learned from",
    "useful_share": "useful",
    "foreign_groups": "foreign",
    "bytes_sent": "sent",
}
"""Of runs that are swarms: the reward of own fresh questions, summed over nodes and rounds; the mean reward of all that was learned
from; the share of others' groups that had something to teach; how many were learned from; bytes sent."""

Column = tuple[str, list[Text]]
EVERY_SEED = "each seed"


def results_table(results: Results) -> RenderableType:
    """Two tables with arms as rows, and what each arm changed.

    The first has held-out scores: the mean over seeds, the score of every seed, and of the untrained model; and, if there are any,
    the answers that the grader failed on. The second has means over seeds: talk measures (shares in [0, 1]; `chars` is characters a
    message, `cut` the largest share of messages that any turn lost to its cap), scores with another player in a seat ("B base"),
    scores under another protocol, thousands of tokens sampled in training, and training minutes. A column that no run can fill is
    left out; a missing value is a dash.
    """
    arms = arm_names(results)
    scores = [("mean", [_score(arm_mean(results, arm, "score"), "bold") for arm in arms])]
    scores += _seed_columns(results, arms)
    scores.append(("untrained", [_score(arm_mean(results, arm, "before", "score")) for arm in arms]))
    failed = [grading_errors(results, arm) for arm in arms]
    if any(failed):
        scores.append(("grader failed", [Text(f"{count:,}", "bold red" if count else "") for count in failed]))

    talk = [(head, [_share(arm_mean(results, arm, "measures", key)) for arm in arms]) for key, head in MEASURES.items()]
    talk.append(("chars", [_whole(arm_mean(results, arm, "measures", "message_chars")) for arm in arms]))
    talk.append(("cut", [_share(mean([worst_cut(run) for run in runs(results, arm).values()])) for arm in arms]))
    for cast in casts(results):
        talk.append((cast_name(cast), [_score(arm_mean(results, arm, "cross_play", cast, "score")) for arm in arms]))
    for name in others(results):
        talk.append((name, [_score(arm_mean(results, arm, "also", name, "score")) for arm in arms]))
    talk += [(head, [_sized(arm_mean(results, arm, "swarm", key)) for arm in arms]) for key, head in SWARM.items()]
    talk.append(("ktokens", [_whole(_thousands(arm_mean(results, arm, "cost", "sampled_tokens"))) for arm in arms]))
    talk.append(("train min", [_whole(arm_mean(results, arm, "minutes", "train")) for arm in arms]))

    tables = [_arm_table(results, arms, columns) for columns in (scores, *_chunks(talk))]
    return Group(
        Text(_heading(results), "bold"), *(part for table in tables if table for part in (table, Text())), *_changes(results, arms)
    )


def _chunks(columns: list[Column], width: int = 60) -> list[list[Column]]:
    """The columns that have something to show, in stretches that leave room for the arms' names on a line of 80."""
    chunks: list[list[Column]] = []
    used = width + 1
    for head, cells in columns:
        if any(cell.plain != "–" for cell in cells):
            wide = max(len(head), *(len(cell.plain) for cell in cells)) + 2
            if used + wide > width:
                chunks.append([])
                used = 0
            chunks[-1].append((head, cells))
            used += wide
    return chunks


def _arm_table(results: Results, arms: list[str], columns: list[Column]) -> Table | None:
    shown = [(head, cells) for head, cells in columns if any(cell.plain != "–" for cell in cells)]
    if not shown:
        return None
    table = Table(header_style="bold", box=None, pad_edge=False)
    table.add_column("arm", no_wrap=True)
    for head, _ in shown:
        table.add_column(Text(head), justify="right", no_wrap=head != EVERY_SEED)
    for row, arm in enumerate(arms):
        name = Text(arm + (" (baseline)" if arm == results.get("baseline") else ""))
        table.add_row(name, *(cells[row] for _, cells in shown))
    return table


_NAME = 14
"""Letters that a comparison's name may have in a line of 80."""


def comparisons_table(results: Results) -> RenderableType:
    """Comparisons as rows, a table for each metric and baseline: the change, its interval over seeds, p, paired seeds, and what
    these seeds could see.

    `p Holm` is the t test's p corrected among all comparisons by the same metric, which the verdict goes by. `could see` is the
    smallest change that these seeds would have seen with 80 % power, alone and taking the observed spread as the true one.
    """
    by: dict[tuple[str, str], list[Any]] = {}
    for row in results.get("comparisons") or []:
        by.setdefault((str(row.get("metric", "score")), str(row.get("baseline"))), []).append(row)
    tables: list[RenderableType] = []
    for (metric, baseline), rows in by.items():
        tables += [Text()] if tables else []
        head = f"against {baseline}" + ("" if metric == "score" else f", by {metric}")
        short = len(head) <= max(_NAME, *(len(str(row.get("arm"))) for row in rows))
        tables += [] if short else [Text(head, "bold")]
        tables.append(_compared(head if short else "arm", rows))
    return Group(*tables)


def _compared(head: str, rows: list[Any]) -> Table:
    table = Table(header_style="bold", box=None, pad_edge=False)
    table.add_column(Text(head), overflow="fold")
    for name in ("change", "interval", "p Holm", "seeds", "could see"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", min_width=11)
    for row in rows:
        verdict = str(row.get("verdict", "–"))
        table.add_row(
            Text(str(row.get("arm"))),
            _signed(number(row.get("delta"))),
            _interval(row.get("interval")),
            _p(number(row.get("p_holm"))),
            _whole(number(row.get("n"))).append("" if row.get("paired", True) else " unpaired"),
            _score(number(row.get("smallest_effect"))),
            Text(verdict, VERDICT_STYLES.get(verdict, "")),
        )
    return table


def verdict_lines(results: Results) -> list[Text]:
    """One line for each comparison: its sentence, with the verdict set off; one line saying so when nothing was compared."""
    rows = results.get("comparisons") or []
    if not rows:
        return [Text("Nothing was compared: a verdict needs a baseline and another arm, each with at least one finished seed.")]
    return [_sentence(row) for row in rows]


def print_results(results: Results, console: Any) -> None:
    """Everything above, in order, to a rich console."""
    question = results.get("question")
    parts = [Text(str(question), "italic")] if question else []
    compared = [comparisons_table(results)] if results.get("comparisons") else []
    for part in (*parts, results_table(results), *compared, *verdict_lines(results)):
        console.print(Padding(part, (0, 0, 1, 0)))


def _heading(results: Results) -> str:
    facts = [str(results[key]) for key in ("recipe", "model", "profile") if results.get(key)]
    every = [run for arm in arm_names(results) for run in runs(results, arm).values()]
    sizes = sorted({int(size) for size in (dig(run, "held_out") for run in every) if size is not None})
    tasks = f" on {' or '.join(f'{size:,}' for size in sizes)} held-out tasks" if sizes else ""
    return f"{' · '.join(facts)}: {results.get('metric', 'score')}{tasks}"


def _changes(results: Results, arms: list[str]) -> list[Text]:
    said = [(arm, ((results.get("arms") or {}).get(arm) or {}).get("change")) for arm in arms]
    return [Text(f"  {arm}: {change}", "dim") for arm, change in said if change]


def casts(results: Results) -> list[str]:
    every = [run.get("cross_play") or {} for arm in arm_names(results) for run in runs(results, arm).values()]
    return list(dict.fromkeys(str(cast) for casts in every for cast in casts))


def others(results: Results) -> list[str]:
    """The names of the other protocols that runs were scored with."""
    every = [run.get("also") or {} for arm in arm_names(results) for run in runs(results, arm).values()]
    return list(dict.fromkeys(str(name) for also in every for name in also))


def _thousands(value: float | None) -> float | None:
    return None if value is None else value / 1000


def cast_name(cast: str) -> str:
    """ "A=policy,B=base" as "B base": the seats that the policy does not hold."""
    seats = [part.partition("=") for part in cast.split(",")]
    return ", ".join(f"{seat} {player}" for seat, _, player in seats if player != "policy") or cast


def _sentence(row: Any) -> Text:
    verdict = str(row.get("verdict", "no verdict"))
    text = Text(str(row.get("sentence") or f"{row.get('arm')} against {row.get('baseline')}: {verdict}."))
    at = text.plain.find(f": {verdict}")
    if at >= 0:
        text.stylize(VERDICT_STYLES.get(verdict, "bold"), at + 2, at + 2 + len(verdict))
    return text


def _seed_columns(results: Results, arms: list[str]) -> list[Column]:
    """One column for each seed; with more than eight seeds one column that wraps, so that no score is hidden."""
    by_arm = {arm: {seed: dig(run, "score") for seed, run in runs(results, arm).items()} for arm in arms}
    seeds = sorted({seed for scores in by_arm.values() for seed in scores})
    if len(seeds) <= 8:
        return [(f"seed {seed}", [_score(by_arm[arm].get(seed)) for arm in arms]) for seed in seeds]
    return [(EVERY_SEED, [Text("  ".join(f"{s}: {_score(score).plain}" for s, score in by_arm[arm].items())) for arm in arms])]


def _score(value: float | None, style: str = "") -> Text:
    return Text("–" if value is None else f"{value:.3f}", style)


def _signed(value: float | None) -> Text:
    return Text("–" if value is None else f"{value:+.3f}")


def _interval(ends: Any) -> Text:
    low, high = (number(end) for end in ends or (None, None))
    return Text("–" if low is None or high is None else f"{low:+.3f} to {high:+.3f}")


def _p(value: float | None) -> Text:
    return Text("–" if value is None else f"{value:.2g}")


def _share(value: float | None) -> Text:
    return Text("–" if value is None else f"{value:.2f}")


def _sized(value: float | None) -> Text:
    return _share(value) if value is None or abs(value) < 10 else _whole(value)


def _whole(value: float | None) -> Text:
    return Text("–" if value is None else f"{value:,.0f}")
