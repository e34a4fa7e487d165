# ruff: noqa: E402
"""What swarms of 10 to 10,000 nodes cost and do, by simulation: `python bench/swarm_scale.py`, about two minutes of one core.

Writes `bench/results/swarm-scale.json`, and from it the tables of `docs/swarm-scale.md`. `--parts traffic quota` makes those anew
and keeps the rest; `--parts` alone writes the page only. All is seeded: the same program gives the same record.
"""

import argparse
import json
import math
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src")]

from coterie.stats.intervals import t_interval
from coterie.swarm.gate.reputation import MOST
from coterie.swarm.gate.words import Limits
from coterie.swarm.simulate.bad import BadNodes, Kind, effective_nodes, play, useful_share
from coterie.swarm.simulate.sharing import Sharing, hub_count, shard_count
from coterie.swarm.simulate.spread import Spread, half_time
from coterie.swarm.simulate.traffic import Costs, load

RECORD, PAGE = ROOT / "bench" / "results" / "swarm-scale.json", ROOT / "docs" / "swarm-scale.md"
NODES = (10, 100, 1000, 10_000)
SEEDS = {10: 20, 100: 20, 1000: 10, 10_000: 4}
PACES = {"equal": {}, "differ": {"sigma": 0.5}, "differ, late": {"sigma": 0.5, "late": 0.3}}
MANY = 200.0
"""Beyond this, the number of nodes that draws came from is not told by some four hundred draws."""
HOUR, DAY = slice(0, 12), slice(72, 96)
KINDS: tuple[Kind, ...] = ("useless", "false", "fresh")
TIGHT = replace(Limits(), envelopes_per_second=0.25)
GUARDS: dict[str, tuple[Any, Limits]] = {
    "nothing": ("nothing", Limits()),
    "quota": ("quota", Limits()),
    "quota of 0.25/s": ("quota", TIGHT),
    "gate": ("gate", Limits()),
    "gate, quota of 0.25/s": ("gate", TIGHT),
}

Row = dict[str, Any]


def announcing(nodes: int) -> Sharing:
    return Sharing(shard_count(nodes))


def interval(values: Sequence[float], most: float = math.inf) -> dict[str, Any]:
    """Mean and 95 % t interval over seeds, cut where the value cannot be: below 0 and above `most`."""
    low, high = t_interval(values) or (math.nan, math.nan)
    low, high = max(0.0, low), min(most, high)
    return {"mean": round(statistics.mean(values), 4), "low": round(low, 4), "high": round(high, 4), "seeds": len(values)}


def traffic(sizes: Sequence[int] = NODES) -> list[Row]:
    return [
        {"nodes": n, "hubs": hub_count(n), "shards": sharing.shards, **asdict(load(n, hub_count(n), sharing))}
        for n in sizes
        for sharing in (Sharing(), announcing(n))
    ]


def hours(setting: Spread, seeds: int) -> dict[str, Any]:
    return interval([half_time(setting, seed) / 3600 for seed in range(seeds)])


def spread(sizes: Sequence[int] = NODES) -> list[Row]:
    return [
        {
            "nodes": n,
            "shards": sharing.shards,
            **{name: hours(Spread(n, sharing, **pace), SEEDS[n]) for name, pace in PACES.items()},
        }
        for n in sizes
        for sharing in (Sharing(), announcing(n))
    ]


def drawn(setting: BadNodes, seeds: int = 10) -> Row:
    runs = [play(setting, seed) for seed in range(seeds)]
    hour = interval([useful_share(run[HOUR]) for run in runs], 1.0)
    day = interval([useful_share(run[DAY]) for run in runs], 1.0)
    return {
        "hour": hour,
        "day": day,
        "nodes_drawn": min(MANY, round(statistics.median(effective_nodes(run[DAY]) for run in runs), 1)),
    }


def bad() -> list[Row]:
    """Flooding at 100 nodes only: the draw depends on the mixture, which is the same at any size."""
    cases: list[tuple[float, Kind]] = [(0.0, "useless")]
    for share in (0.1, 0.3):
        cases.extend((share, kind) for kind in KINDS)
    ways = [
        ("flooding", 100, Sharing(), False),
        *(("announcing", n, announcing(n), False) for n in (100, 1000, 10_000)),
        ("announcing, shards by group", 1000, announcing(1000), True),
    ]
    return [
        {"way": way, "nodes": n, "share": share, "kind": kind}
        | {guard: drawn(BadNodes(n, share, kind, guard, sharing, by_group)) for guard in ("nothing", "gate")}
        for way, n, sharing, by_group in ways
        for share, kind in cases
    ]


def quota() -> list[Row]:
    """1,000 nodes, announcing, 10 % that send useless groups; and what judging them all would cost when flooding."""
    costs, seconds = Costs(), 300.0
    rows = []
    for rate in (4, 100, 1000):
        row: Row = {"rate": rate}
        for name, (guard, limits) in GUARDS.items():
            setting = BadNodes(1000, 0.1, "useless", guard, announcing(1000), rate=float(rate), limits=limits)
            sent = setting.groups * rate / seconds
            passed = sent if guard == "nothing" else min(sent, limits.envelopes_per_second)
            row[name] = drawn(setting) | {"cores": round(100 * passed * (costs.verify + costs.gate), 4)}
        rows.append(row)
    return rows


def shards() -> list[Row]:
    rows = []
    for per_shard in (4, 8, 16, 32, 64, 128):
        sharing = Sharing(shard_count(1000, per_shard))
        bytes_in = load(1000, hub_count(1000), sharing).client_in
        gate = drawn(BadNodes(1000, 0.3, "useless", "gate", sharing))
        half = hours(Spread(1000, sharing, sigma=0.5), 10)
        rows.append({"per_shard": per_shard, "shards": sharing.shards, "client_in": bytes_in, "half": half, "gate": gate})
    return rows


def draws() -> list[Row]:
    rows, sharing = [], announcing(1000)
    for j in (1, 2, 4, 6, 8):
        bytes_in = load(1000, hub_count(1000), sharing, draws=j).client_in
        gate = drawn(BadNodes(1000, 0.3, "useless", "gate", sharing, draws=j))
        halves = {str(takes): hours(Spread(1000, sharing, sigma=0.5, draws=j, takes=takes), 10) for takes in (0.25, 1.0)}
        rows.append({"draws": j, "client_in": bytes_in, "half": halves, "gate": gate})
    return rows


def most() -> list[Row]:
    """The gate with other bounds on what one node may be of a draw, and how fast things spread if draws come from so few nodes."""
    rows, sharing = [], announcing(1000)
    for bound in (1.0, 1 / 4, 1 / 8, 1 / 16):
        cases: dict[str, tuple[float, Kind]] = {
            "none": (0.0, "useless"),
            "useless": (0.3, "useless"),
            "false": (0.3, "false"),
            "fresh": (0.3, "fresh"),
        }
        row: Row = {name: drawn(BadNodes(1000, *case, "gate", sharing, most=bound)) for name, case in cases.items()}
        favourites = round(row["none"]["nodes_drawn"])
        half = hours(Spread(1000, sharing, sigma=0.5, favourites=favourites), 20)
        rows.append({"most": bound, "favourites": favourites, "half": half} | row)
    return rows


PARTS: dict[str, Callable[[], list[Row]]] = {
    "traffic": traffic,
    "spread": spread,
    "bad": bad,
    "quota": quota,
    "shards": shards,
    "draws": draws,
    "most": most,
}


def amount(value: float) -> str:
    """Bytes, in the unit that suits."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} B"


def rate(value: float, seconds: float) -> str:
    """Bits a second of so many bytes in so many seconds."""
    bits = 8 * value / seconds
    return f"{bits / 1e9:.3g} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:.3g} Mbit/s" if bits >= 1e6 else f"{bits / 1e3:.3g} kbit/s"


def few(value: float) -> str:
    return f"{value:.3g}" if value < MANY else "many"


def ranged(one: Row, digits: int = 2) -> str:
    return f"{one['mean']:.{digits}f} ({one['low']:.{digits}f}, {one['high']:.{digits}f})"


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    return "\n".join("| " + " | ".join(str(cell) for cell in row) + " |" for row in (head, ["---"] * len(head), *rows))


def way(row: Row) -> str:
    return "flooding" if row["shards"] is None else f"{row['shards']} shard{'s' if row['shards'] > 1 else ''}"


def traffic_table(rows: list[Row]) -> str:
    head = ["nodes (hubs)", "sharing", "client in", "client out, mean (most)", "busiest hub out"]
    head += ["client in, 300 s rounds", "60 s rounds", "hub out, 300 s rounds", "processor"]
    return table(
        head,
        [
            [
                f"{r['nodes']:,} ({r['hubs']})",
                way(r),
                amount(r["client_in"]),
                f"{amount(r['client_out'])} ({amount(r['client_out_most'])})",
                amount(r["hub_out"]),
                *(rate(r["client_in"], seconds) for seconds in (300, 60)),
                rate(r["hub_out"], 300),
                f"{r['cpu']:.2g} s",
            ]
            for r in rows
        ],
    )


def spread_table(rows: list[Row]) -> str:
    head = ["nodes", "sharing", *(f"paces {name}" for name in PACES), "seeds"]
    return table(head, [[f"{r['nodes']:,}", way(r), *(ranged(r[name]) for name in PACES), r["equal"]["seeds"]] for r in rows])


def bad_table(rows: list[Row]) -> str:
    """All of flooding and of 1,000 nodes; of other sizes one line each, since they are alike."""
    rows = [r for r in rows if r["way"] != "announcing" or r["nodes"] == 1000 or (r["share"], r["kind"]) == (0.3, "useless")]
    head = ["sharing", "nodes", "bad", "first hour, no gate", "gate", "after six hours, no gate", "gate"]
    head += ["drawn from, no gate", "gate"]
    return table(
        head,
        [
            [
                r["way"],
                f"{r['nodes']:,}",
                f"{100 * r['share']:.0f} % {r['kind']}" if r["share"] else "none",
                *(ranged(r[guard][when]) for when in ("hour", "day") for guard in ("nothing", "gate")),
                *(few(r[guard]["nodes_drawn"]) for guard in ("nothing", "gate")),
            ]
            for r in rows
        ],
    )


def quota_table(rows: list[Row]) -> str:
    head = ["bad nodes send", "", *GUARDS]
    lines = []
    for r in rows:
        lines.append([f"{r['rate']} times", "share of useful draws, first hour", *(ranged(r[name]["hour"]) for name in GUARDS)])
        lines.append(["", "the same, after six hours", *(ranged(r[name]["day"]) for name in GUARDS)])
        lines.append(["", "cores to judge theirs when flooding", *(f"{r[name]['cores']:.2g}" for name in GUARDS)])
    return table(head, lines)


def shards_table(rows: list[Row]) -> str:
    head = ["nodes a shard", "shards", "client in", "hours to half", "useful, first hour", "useful, after six hours", "drawn from"]
    return table(
        head,
        [
            [
                r["per_shard"],
                r["shards"],
                amount(r["client_in"]),
                ranged(r["half"]),
                ranged(r["gate"]["hour"]),
                ranged(r["gate"]["day"]),
                few(r["gate"]["nodes_drawn"]),
            ]
            for r in rows
        ],
    )


def draws_table(rows: list[Row]) -> str:
    head = ["J", "client in", "hours to half, one group in four teaches", "every group teaches"]
    head += ["useful, first hour", "useful, after six hours"]
    return table(
        head,
        [
            [
                r["draws"],
                amount(r["client_in"]),
                *(ranged(r["half"][takes]) for takes in ("0.25", "1.0")),
                *(ranged(r["gate"][when]) for when in ("hour", "day")),
            ]
            for r in rows
        ],
    )


def most_table(rows: list[Row]) -> str:
    head = ["most of one node", "useful, first hour: useless", "false", "fresh", "after six hours: useless", "false", "fresh"]
    head += ["drawn from, none bad", "hours to half"]
    return table(
        head,
        [
            [
                "no bound" if r["most"] == 1 else f"1/{1 / r['most']:.0f}" + (" (the gate)" if r["most"] == MOST else ""),
                *(ranged(r[kind][when]) for when in ("hour", "day") for kind in KINDS),
                few(r["none"]["nodes_drawn"]),
                ranged(r["half"]),
            ]
            for r in rows
        ],
    )


TABLES: dict[str, Callable[[list[Row]], str]] = {
    "traffic": traffic_table,
    "spread": spread_table,
    "bad": bad_table,
    "quota": quota_table,
    "shards": shards_table,
    "draws": draws_table,
    "most": most_table,
}
_BLOCK = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def fill(page: str, made: dict[str, Any]) -> str:
    """The page with each block between its two marks made anew."""
    return _BLOCK.sub(lambda match: f"{match[1]}\n{TABLES[match[2]](made[match[2]])}\n\n{match[3]}", page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="*", choices=[*PARTS], default=[*PARTS])
    parts = parser.parse_args().parts
    made = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else {}
    made = {name: make() if name in parts else made[name] for name, make in PARTS.items() if name in parts or name in made}
    RECORD.write_text(json.dumps(made, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), made), encoding="utf-8")


if __name__ == "__main__":
    main()
