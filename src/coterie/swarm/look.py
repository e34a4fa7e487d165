"""What the nodes of a folder are doing, read from their files: while they run, and after they have ended however they did."""

import time
from pathlib import Path
from typing import Any

from coterie.config.exchange import SqliteExchangeConfig
from coterie.records import read_json, read_lines
from coterie.swarm.exchange.sqlite import SqliteExchange
from coterie.swarm.gate.state import read_rows
from coterie.swarm.gate.words import Reason
from coterie.swarm.place import NodeFolder, SwarmFolder
from coterie.swarm.summary import mean

RECENT = 10
"""Rounds over which a node's own reward is shown."""


def look(swarm: SwarmFolder, now: float | None = None) -> dict[str, Any]:
    """As JSON. Times are unix seconds; `reward` is the mean own reward of the last `RECENT` rounds."""
    nodes = swarm.nodes()
    names = {node.id: node.name for node in nodes}
    judged = [row for node in nodes for row in _judged(node, names)]
    return {
        "swarm": swarm.membership().name,
        "folder": str(swarm.path),
        "time": time.time() if now is None else now,
        "nodes": [_node(swarm, node) for node in nodes],
        "judged": judged,
        "peers": _peers(swarm, nodes, names),
    }


def _node(swarm: SwarmFolder, folder: NodeFolder) -> dict[str, Any]:
    config, status, metrics = folder.config(), folder.status(), read_lines(folder.metrics_file)
    running = folder.running
    said = folder.state().get("status", "new")
    return {
        "name": folder.name,
        "node": folder.id,
        "running": running,
        # a process that ends of itself says how; one that did not was killed, or broke
        "state": said if running or said not in ("loading", "playing", "evaluating") else "killed",
        "leaving": running and folder.leave_file.exists(),
        "round": max(len(metrics), status.get("round", 0)),
        "rounds": config.train.steps,
        "reward": mean(m["reward"] for m in metrics[-RECENT:]),
        "score": read_json(folder.result_file)["score"] if folder.finished else None,
        "allowed": folder.membership().allowed,
        **{key: status.get(key, 0) for key in ("pool", "groups_sent", "bytes_sent", "errors")},
        **{key: status.get(key) for key in ("last_error", "time")},
        "exchange": _exchange(swarm, folder) or status.get("exchange"),
    }


def _exchange(swarm: SwarmFolder, folder: NodeFolder) -> str | None:
    """The state of a file is seen here and now; what a network was doing, only the node knows, as of its last round."""
    about = folder.membership().exchange
    if not isinstance(about, SqliteExchangeConfig) or not (swarm.path / about.path).is_file():
        return None
    exchange = SqliteExchange(swarm.path / about.path)
    try:
        return exchange.status()
    finally:
        exchange.close()


def _judged(folder: NodeFolder, names: dict[str, str]) -> list[dict[str, Any]]:
    """What this node's gate has let in and dropped, by sender."""
    found = []
    for row in read_rows(folder.path / "gate.sqlite"):
        dropped = {reason: count for reason, count in row.dropped.items() if reason != Reason.OWN}
        if row.admitted or dropped:
            found.append(
                {
                    "by": folder.name,
                    "node": row.node,
                    "name": names.get(row.node),
                    "proven": row.proven,
                    "last_seen": row.last_seen,
                    "admitted": row.admitted,
                    "useful": row.useful,
                    "dropped": dropped,
                }
            )
    return found


def _peers(swarm: SwarmFolder, nodes: list[NodeFolder], names: dict[str, str]) -> list[dict[str, Any]]:
    """Everybody whose envelopes have come to this folder, whatever the gates made of them."""
    heard: dict[str, dict[str, Any]] = {}
    for store in dict.fromkeys(_store(swarm, node) for node in nodes):
        if not store.is_file():
            continue
        exchange = SqliteExchange(store)
        try:
            for peer in exchange.peers():
                one = heard.setdefault(
                    peer.node, {"node": peer.node, "name": names.get(peer.node), "last_seen": 0.0, "envelopes": 0}
                )
                one["last_seen"] = max(one["last_seen"], peer.last_seen)
                one["envelopes"] = max(one["envelopes"], peer.envelopes)
        finally:
            exchange.close()
    return sorted(heard.values(), key=lambda one: -one["last_seen"])


def _store(swarm: SwarmFolder, node: NodeFolder) -> Path:
    about = node.membership().exchange
    return swarm.path / about.path if isinstance(about, SqliteExchangeConfig) else node.store_file
