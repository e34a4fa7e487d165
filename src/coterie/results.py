"""From finished runs to `results.json`: arms, seeds, comparisons."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from coterie.config_errors import differences
from coterie.kinds import run_config
from coterie.records import read_json, write_json
from coterie.runs import RunFolder, versions
from coterie.stats.compare import compare
from coterie.stats.comparison import as_row
from coterie.stats.holm import corrected
from coterie.stats.variance import Rewards
from coterie.types import CoterieError

NEEDED = {"recipe", "profile", "arm", "seed", "score", "steps", "conditions", "cross_play"}
UNTRAINED = "untrained"
"""The name that takes a seed's place in the folder of an arm's untrained evaluation."""


def run_name(arm: str, seed: int) -> str:
    return f"{arm}-seed{seed}"


def untrained_name(arm: str) -> str:
    return f"{arm}-{UNTRAINED}"


def read_records(folder: Path) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """All finished records below a folder: (trained runs, untrained evaluations by arm). A record is a run folder's result.json
    or a committed file named <arm>-seed<k>.json or <arm>-untrained.json."""
    if not folder.is_dir():
        raise CoterieError(f"{folder}: there is no such folder; give one that holds run folders or result files")
    files = [
        *sorted(folder.glob("*/result.json")),
        *sorted(folder.glob("*-seed*.json")),
        *sorted(folder.glob(f"*-{UNTRAINED}.json")),
    ]
    trained, untrained = [], {}
    for file in files:
        record = read_json(file)
        if not isinstance(record, dict) or not record.keys() >= NEEDED:
            raise CoterieError(f"{file}: not the record of a run; it needs {', '.join(sorted(NEEDED))}")
        if record["steps"]:
            trained.append(record)
        else:
            untrained[record["arm"]] = record
    if not trained and not untrained:
        raise CoterieError(
            f"{folder}: holds no finished run; finish one with coterie run, or name the folder that holds run folders"
        )
    return trained, untrained


def keep_records(trained: Sequence[dict[str, Any]], untrained: dict[str, dict[str, Any]], folder: Path) -> int:
    """Write each record into `folder`, under the name by which `read_records` finds it. One that is there already and differs is
    refused, so that results accumulate and are never replaced. An untrained evaluation is made again whenever seeds are added, and
    differs in its times at least: the one that is there is kept when it was made under the same conditions."""
    named = {run_name(r["arm"], r["seed"]): r for r in trained} | {untrained_name(arm): r for arm, r in untrained.items()}
    files = {folder / f"{name}.json": record for name, record in named.items()}
    for file, record in files.items():
        there = read_json(file) if file.exists() else None
        if there not in (None, record) and not _same_evaluation(there, record):
            raise CoterieError(f"{file} holds another record; choose another folder with --records, or remove it")
    for file, record in files.items():
        if not file.exists():
            write_json(file, record)
    return len(files)


def _same_evaluation(one: Any, other: dict[str, Any]) -> bool:
    """Whether both are untrained evaluations of one arm under the same conditions."""
    if not isinstance(one, dict) or not one.keys() >= NEEDED or one["steps"] or other["steps"]:
        return False
    same = all(one[key] == other[key] for key in ("recipe", "profile", "arm"))
    return same and conditions_of(one) == conditions_of(other)


def check_comparable(where: Path, records: Sequence[dict[str, Any]], declared: Collection[str]) -> None:
    """Make sure that `records` differ in nothing but seed and arm, and arms in nothing but `declared` (dotted keys, and what is
    below them). Untrained evaluations are held against each other only. A record needs what `NEEDED` names, but for its score."""
    seen: dict[tuple[str, int, bool], Any] = {}
    first: dict[bool, dict[str, Any]] = {}
    for record in records:
        trained = bool(record["steps"])
        name = run_name(record["arm"], record["seed"]) if trained else untrained_name(record["arm"])
        if seen.setdefault((record["arm"], record["seed"], trained), record) is not record:
            raise CoterieError(f"{where}: holds {name} twice; keep one of them")
        other = first.setdefault(trained, record)
        for key in ("recipe", "profile"):
            if record[key] != other[key]:
                raise CoterieError(
                    f"{where}: holds runs of more than one {key} ({other[key]} and {record[key]}); keep them in separate folders"
                )
        found = differences(conditions_of(other), conditions_of(record))
        allowed = declared if record["arm"] != other["arm"] else ()
        odd = [key for key in found if not any(key == one or key.startswith(f"{one}.") for one in allowed)]
        if odd:
            raise CoterieError(
                f"{where}: {name} cannot be compared with {other['arm']}, seed {other['seed']}: they differ in {', '.join(odd[:4])}"
            )


def conditions_of(record: dict[str, Any]) -> dict[str, Any]:
    """A record's conditions as this version writes them: settings that it did not know yet have their defaults, which are what it
    did. One that cannot be read so (a plugin that is not loaded) is taken as it is written."""
    written = record["conditions"]
    who = {key: record[key] for key in ("recipe", "profile", "arm", "seed")}
    try:
        now = run_config().model_validate({**{k: v for k, v in written.items() if k != "noise"}, **who}).conditions()
    except ValidationError:
        return written
    return {**now, "noise": written.get("noise", now["noise"])}


def gather(
    trained: Sequence[dict[str, Any]],
    untrained: dict[str, dict[str, Any]],
    *,
    title: str,
    question: str,
    baseline: str,
    changes: dict[str, str],
    min_effect: float,
    metrics: Sequence[str] = ("score",),
    also_against: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """One JSON-ready summary of all runs of a recipe; `report` documents what it reads from it. `metrics` are what the arms are
    compared by (see `metric_of`): every arm with the baseline, and what `also_against` names with another arm."""
    arms: dict[str, Any] = {}
    order = [name for name in changes if any(r["arm"] == name for r in trained)]
    for arm in order + sorted({r["arm"] for r in trained} - set(order)):
        seeds = {}
        for record in sorted((r for r in trained if r["arm"] == arm), key=lambda r: r["seed"]):
            before = untrained.get(arm)
            seeds[str(record["seed"])] = {
                **{
                    key: record.get(key)
                    for key in ("score", "held_out", "episodes", "measures", "grading_errors", "minutes", "steps", "curve", "cost")
                },
                "cross_play": {
                    cast: {"score": of["score"], "measures": of["measures"]} for cast, of in record["cross_play"].items()
                },
                "also": {name: {"score": of["score"], "measures": of["measures"]} for name, of in record.get("also", {}).items()},
                **({"swarm": record["swarm"], "specialties": record["specialties"]} if record.get("swarm") else {}),
                "before": {"score": before["score"], "measures": before["measures"]} if before else None,
            }
        arms[arm] = {"change": changes.get(arm, ""), "seeds": seeds}
    some = next(iter([*trained, *untrained.values()]))
    return {
        "recipe": some["recipe"],
        "title": title,
        "question": question,
        "model": some["model"],
        "profile": some["profile"],
        "metric": "team reward",
        "sampling": some["sampling"],
        "baseline": baseline,
        "arms": arms,
        "comparisons": [row for metric in metrics for row in comparisons(arms, baseline, min_effect, metric, also_against)],
        "versions": some.get("versions", versions()),
        "machine": some.get("machine"),
    }


def rewards_by_arm(trained: Sequence[dict[str, Any]]) -> dict[str, dict[int, Rewards]]:
    """Arm to seed to the reward of every held-out episode, by task. Raises `CoterieError` for records without them, and for swarms:
    what they keep for a task are the answers of different nodes, not repeated episodes of one policy."""
    found: dict[str, dict[int, Rewards]] = {}
    for record in trained:
        name = run_name(record["arm"], record["seed"])
        if record.get("swarm"):
            raise CoterieError(f"{name} is a swarm: its answers to a task are of different nodes, so they are no repeated episodes")
        if not record.get("per_task"):
            raise CoterieError(f"{name} holds no rewards by task (per_task); play it again, or leave it out")
        found.setdefault(record["arm"], {})[record["seed"]] = record["per_task"]
    return found


def metric_of(run: Mapping[str, Any], metric: str) -> float | None:
    """A run's value of a metric: "score" (held-out team reward), "cross_play" (the mean score of the trained copy with strangers in
    the other seats), "also.NAME" (the score under another protocol), or "swarm.NAME" (see `swarm.summary`). None where the run does
    not have it."""
    if metric == "cross_play":
        scores = [of["score"] for of in (run.get("cross_play") or {}).values()]
        return sum(scores) / len(scores) if scores and None not in scores else None
    if metric.startswith("also."):
        return ((run.get("also") or {}).get(metric.removeprefix("also.")) or {}).get("score")
    if metric.startswith("swarm."):
        return (run.get("swarm") or {}).get(metric.removeprefix("swarm."))
    return run.get("score")


def comparisons(
    arms: dict[str, Any],
    baseline: str,
    min_effect: float,
    metric: str = "score",
    also_against: Mapping[str, Sequence[str]] | None = None,
) -> list[dict[str, Any]]:
    """Every arm against the baseline, and what `also_against` names, by a metric over the seeds: one family for Holm's
    correction."""
    scores = {
        arm: {int(seed): value for seed, run in of["seeds"].items() if (value := metric_of(run, metric)) is not None}
        for arm, of in arms.items()
    }
    wanted = [(baseline, arm) for arm in scores]
    wanted += [(reference, arm) for reference, others in (also_against or {}).items() for arm in scores if arm in others]
    pairs = [(one, arm) for one, arm in dict.fromkeys(wanted) if arm != one and scores.get(one) and scores[arm]]
    family = corrected([compare(scores[one], scores[arm], min_effect=min_effect) for one, arm in pairs])
    rows = []
    for (reference, arm), found in zip(pairs, family, strict=True):
        if metric == "score":
            row = _with_start(as_row(found, arm, reference), _untrained(arms[arm]), _untrained(arms[reference]))
        else:
            row = as_row(found, f"{arm}, {metric},", reference) | {"arm": arm}
        rows.append({**row, "metric": metric})
    return rows


def _untrained(arm: dict[str, Any]) -> float | None:
    """The score of the arm's model before training; its seeds share it."""
    return next((run["before"]["score"] for run in arm["seeds"].values() if run.get("before")), None)


def _with_start(row: dict[str, Any], arm: float | None, baseline: float | None) -> dict[str, Any]:
    """Say how much of a difference was there before training: arms whose untrained models score apart differ without learning."""
    if arm is None or baseline is None:
        return row
    start = arm - baseline
    said = f"{row['sentence']} Before training it was {start:+.3f}, so training made {row['delta'] - start:+.3f} of it."
    return {**row, "untrained_delta": start, "sentence": said}


def folders_of(out: Path, arms: Sequence[str], seeds: Sequence[int], before: bool) -> list[tuple[str, int | None, RunFolder]]:
    """(arm, seed or None for the untrained evaluation, folder), arms in turn within a seed, so that a stopped experiment has
    whole pairs and two workers finish together."""
    jobs: list[tuple[str, int | None, RunFolder]] = []
    if before:
        jobs += [(arm, None, RunFolder(out / untrained_name(arm))) for arm in arms]
    return jobs + [(arm, seed, RunFolder(out / run_name(arm, seed))) for seed in seeds for arm in arms]
