"""Cross-play: the copies of every finished seed of an arm, and the untrained base, each with each.

Self-play scores say how well a policy works with itself. Whether what it learned is a skill or a private code shows with partners
that it never met: independent seeds of the same training (Hu et al., Other-Play, 2003.02979, whose "cross-play" this is). The mean
with itself minus the mean with another seed is the price of meeting a stranger.

A seed is in many pairs, so the pairs of a mean are not independent: the price is told for every seed, and seeds are what to count.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from coterie.again import assemble_here
from coterie.casts.base import player_name
from coterie.casts.self_play import FixedCast
from coterie.config import RunConfig
from coterie.config.play import SelfPlayConfig
from coterie.evaluate import evaluate, role
from coterie.records import write_json
from coterie.runs import RunFolder, machine, versions
from coterie.types import BASE, CoterieError, Player, Seat

NOISE_SEED = 0
"""All pairs meet the same sampling noise, which belongs to no training seed."""


def sides(seats: tuple[Seat, ...]) -> tuple[tuple[str, tuple[Seat, ...]], tuple[str, tuple[Seat, ...]]]:
    """Who is held against whom, as (name, seats): the first role against all others; of one role, the first seat against the rest.

    Raises CoterieError when there is only one seat.
    """
    if len(seats) < 2:
        raise CoterieError("cross-play needs a protocol with two seats or more; this one has a single copy")
    roles = list(dict.fromkeys(role(seat) for seat in seats))
    first = tuple(seat for seat in seats if role(seat) == roles[0]) if len(roles) > 1 else seats[:1]
    others = tuple(seat for seat in seats if seat not in first)
    named = roles[1] if len(roles) == 2 else others[0] if len(others) == 1 else "others"
    return (roles[0] if len(roles) > 1 else first[0], first), (named, others)


def finished_runs(folder: Path, arm: str) -> list[RunFolder]:
    """The finished runs of an arm in a folder of runs, by seed."""
    if not folder.is_dir():
        raise CoterieError(f"{folder}: there is no such folder; give one that holds run folders")
    runs = [RunFolder(path.parent) for path in sorted(folder.glob("*/result.json")) if (path.parent / "config.toml").is_file()]
    configs = [(run.config(), run) for run in runs]
    found = sorted(((c.seed, run) for c, run in configs if c.arm == arm and c.train.steps), key=lambda pair: pair[0])
    if not found:
        arms = ", ".join(sorted({c.arm for c, _ in configs if c.train.steps}))
        remedy = f"it has those of {arms}" if arms else "finish one with coterie run, or name the folder that holds run folders"
        raise CoterieError(f"{folder}: holds no finished run of arm {arm}; {remedy}")
    return [run for _, run in found]


def crossplay(folder: Path, arm: str, episodes: int = 1, tasks: int | None = None) -> dict[str, Any]:
    """Score every pair on the held-out tasks (the first `tasks` of them); writes `crossplay-<arm>.json` and `.png` there."""
    from coterie.report.heatmap import draw_crossplay

    runs = finished_runs(folder, arm)
    config = runs[0].config()
    config = config.model_copy(
        update={
            "cast": SelfPlayConfig(),
            "evaluate": config.evaluate.model_copy(
                update={"cross_play": True, "partners": tuple(str(run.path.resolve()) for run in runs), "also": {}}
            ),
        }
    )
    record = score_pairs(config, [run.config().seed for run in runs], episodes, tasks)
    write_json(folder / f"crossplay-{arm}.json", record)
    draw_crossplay(record, folder / f"crossplay-{arm}.png")
    return record


def score_pairs(config: RunConfig, seeds: Sequence[int], episodes: int, tasks: int | None) -> dict[str, Any]:
    """The record of all pairs of the runs that `config.evaluate.partners` names, whose training seeds are `seeds`."""
    players = [player_name(partner) for partner in config.evaluate.partners] + [BASE]
    stage = assemble_here(config)
    (row_name, rows), (column_name, columns) = sides(stage.hall.protocol.seats)
    held_out = stage.tasks.held_out[:tasks]
    hall = replace(stage.evaluation_hall, seed=NOISE_SEED)

    def score(one: Player, other: Player) -> float | None:
        cast = FixedCast({**dict.fromkeys(rows, one), **dict.fromkeys(columns, other)})
        return evaluate(hall, held_out, cast, episodes).score

    scores = [[score(one, other) for other in players] for one in players]
    return {
        "recipe": config.recipe,
        "profile": config.profile,
        "arm": config.arm,
        "model": Path(config.model.path).name,
        "seeds": list(seeds),
        "players": players,
        "rows": row_name,
        "columns": column_name,
        "scores": scores,
        "means": means(scores),
        "by_seed": {str(seed): of_seed(scores, index) for index, seed in enumerate(seeds)},
        "held_out": len(held_out),
        "episodes": episodes,
        "sampling": config.evaluation_sampling.model_dump(),
        "conditions": config.conditions(),
        "versions": versions(),
        "machine": machine(),
    }


Scores = Sequence[Sequence[float | None]]
"""`[r][c]`: player r in the rows' seat with player c in the columns'; the base is last."""


def means(scores: Scores) -> dict[str, float | None]:
    """The mean over pairs of each kind; None where there is no pair."""
    trained = range(len(scores) - 1)
    return {
        "with itself": _mean([scores[i][i] for i in trained]),
        "with another seed": _mean([scores[i][j] for i in trained for j in trained if i != j]),
        "with the base": _mean([one for i in trained for one in (scores[i][-1], scores[-1][i])]),
        "base with itself": scores[-1][-1],
    }


def of_seed(scores: Scores, index: int) -> dict[str, float | None]:
    """The same for one seed, over the pairs that it is in, in either seat."""
    others = [i for i in range(len(scores) - 1) if i != index]
    return {
        "with itself": scores[index][index],
        "with another seed": _mean([one for i in others for one in (scores[index][i], scores[i][index])]),
        "with the base": _mean([scores[index][-1], scores[-1][index]]),
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
