"""What the nodes of a swarm's folder are doing, in the terminal. What others sent is shown as it stands, never as markup."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from coterie.swarm.serve import size

SHORT = 8
"""Digits of a key that are shown; --json has all 64."""


def print_status(found: Mapping[str, Any], console: Console) -> None:
    """`found` is `swarm.look.look`."""
    running = sum(node["running"] for node in found["nodes"])
    console.print(
        f"swarm {found['swarm']} in {found['folder']}: {running} of {len(found['nodes'])} nodes here are running", markup=False
    )
    console.print(nodes_table(found))
    for sentence, names in _grouped(found["nodes"], "exchange").items():
        console.print(f"{names}: {sentence}", markup=False, soft_wrap=True)
    for sentence, names in _grouped(found["nodes"], "last_error").items():
        console.print(f"{names}: the last error was: {sentence}", markup=False, soft_wrap=True)
    if found["judged"]:
        console.print()
        console.print(judged_table(found))
    if found["peers"]:
        console.print()
        console.print(peers_table(found))
    else:
        console.print("Nobody has shared anything here yet; nodes go on alone and lose nothing.")


def nodes_table(found: Mapping[str, Any]) -> Table:
    """`reward` is the mean of the node's own answers over its last ten rounds, in [0, 1]."""
    table = _table("node", "key", "state", "round", "reward", "score", "pool", "sent", "bytes", "errors")
    for node in found["nodes"]:
        state = "leaving" if node["leaving"] else node["state"]
        done = f"{node['round']}/{node['rounds']}"
        sent = [node["pool"], node["groups_sent"], size(node["bytes_sent"]), node["errors"]]
        _row(table, node["name"], node["node"][:SHORT], state, done, _share(node["reward"]), _share(node["score"]), *sent)
    return table


def judged_table(found: Mapping[str, Any]) -> Table:
    """Groups of answers by sender, over the folder's nodes: those let in, those of them that teach, those dropped and why."""
    table = _table("from", "let in", "useful", "dropped, and why", title="what the gates of these nodes judged")
    senders: dict[str, dict[str, Any]] = {}
    for row in found["judged"]:
        of = senders.setdefault(row["node"], {"name": row["name"], "admitted": 0, "useful": 0, "dropped": {}, "proven": False})
        of["admitted"] += row["admitted"]
        of["useful"] += row["useful"]
        of["proven"] = of["proven"] or row["proven"]
        for reason, count in row["dropped"].items():
            of["dropped"][reason] = of["dropped"].get(reason, 0) + count
    for node, of in senders.items():
        why = ", ".join(f"{reason} {count}" for reason, count in sorted(of["dropped"].items())) or "–"
        name = _name(node, of["name"]) + ("" if of["proven"] else " (nothing signed)")
        _row(table, name, of["admitted"], of["useful"], why)
    return table


def peers_table(found: Mapping[str, Any]) -> Table:
    table = _table("who", "last heard", "envelopes", title="heard of, own nodes included")
    for peer in found["peers"]:
        _row(table, _name(peer["node"], peer["name"]), ago(found["time"] - peer["last_seen"]), peer["envelopes"])
    return table


def ago(seconds: float) -> str:
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{max(seconds, 0):.0f} s ago"


def _grouped(nodes: Sequence[Mapping[str, Any]], key: str) -> dict[str, str]:
    """The nodes, by name, that say one sentence."""
    said: dict[str, list[str]] = {}
    for node in nodes:
        if node[key]:
            said.setdefault(node[key], []).append(node["name"])
    return {sentence: ", ".join(names) for sentence, names in said.items()}


def _name(node: str, name: str | None) -> str:
    return node[:SHORT] if name is None else f"{node[:SHORT]} ({name})"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _table(*heads: str, title: str | None = None) -> Table:
    table = Table(box=None, pad_edge=False, title=title, title_justify="left", title_style="italic")
    for i, head in enumerate(heads):
        numbers = head in ("round", "reward", "score", "pool", "sent", "bytes", "errors", "let in", "useful", "envelopes")
        table.add_column(head, justify="right" if numbers else "left", no_wrap=i < 4 or numbers, header_style="bold")
    return table


def _row(table: Table, *cells: object) -> None:
    table.add_row(*(Text(str(cell)) for cell in cells))
