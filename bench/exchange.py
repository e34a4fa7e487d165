# ruff: noqa: E402
"""The three exchanges under one load: `python bench/exchange.py --out bench/results/exchange-NAME.json`.

8 processes of one host, each publishing 20 envelopes of 20 KB, 50 ms apart, and drawing every 10 ms. `delivered` is the share of
envelopes drawn by everybody, own ones included; times run from before `publish` to after the `draw` that brings another's envelope.
`repaired` counts what zenoh did not push but fetched. `--pause 0` publishes without a break, which is when puts are dropped.
"""

import argparse
import json
import os
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "src")]

from coterie.swarm.exchange.folder import FolderExchange
from coterie.swarm.exchange.links import one_host
from coterie.swarm.exchange.sqlite import SqliteExchange
from coterie.swarm.exchange.zenoh import ZenohExchange

KINDS, LIMIT = ("sqlite", "folder", "zenoh"), 60


def make(kind: str, home: Path, node: str, port: int) -> Any:
    if kind == "sqlite":
        return SqliteExchange(home / "swarm.sqlite")
    if kind == "folder":
        return FolderExchange(home / "shared", home / f"{node}.sqlite")
    return ZenohExchange("bench", node, home / f"{node}.sqlite", **one_host(port))


def work(kind: str, home: Path, node: str, port: int, nodes: int, count: int, size: int, pause: float) -> dict[str, Any]:
    """One process: says that it is ready, and begins when told."""
    exchange = make(kind, home, node, port)
    while kind == "zenoh" and not exchange.status().startswith(f"connected to {nodes - 1} "):
        time.sleep(0.05)
    time.sleep(1)
    print("ready", flush=True)
    sys.stdin.readline()
    start, used = time.perf_counter(), time.process_time()
    times, publishing, drawn, last, seq = [], [], 0, 0, 0
    while drawn < nodes * count and time.perf_counter() - start < LIMIT:
        if seq < count and time.perf_counter() - start >= seq * pause:
            before = time.perf_counter()
            exchange.publish(node, seq, struct.pack("d", time.time()) + os.urandom(size - 8))
            publishing.append(time.perf_counter() - before)
            seq += 1
        for one in exchange.draw(last, 100):
            last, drawn = one.number, drawn + 1
            if one.node != node:
                times.append(time.time() - struct.unpack_from("d", one.body)[0])
        time.sleep(0.01 if seq == count or pause else 0)
    result = {
        "drawn": drawn,
        "times": times,
        "publishing": publishing,
        "cpu": time.process_time() - used,
        "status": exchange.status(),
    }
    result |= {
        "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "repaired": getattr(exchange, "counts", {}).get("repaired", 0),
    }
    print(json.dumps(result), flush=True)
    sys.stdin.readline()
    exchange.close()
    return result


def measure(kind: str, port: int, nodes: int, count: int, size: int, pause: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as home:
        script = [sys.executable, __file__, "--work", kind, home]
        rest = [str(value) for value in (port, nodes, count, size, pause)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        children: list[Any] = [subprocess.Popen([*script, f"n{i}", *rest], **pipes) for i in range(nodes)]

        def tell() -> None:
            for child in children:
                child.stdin.write("go\n")
                child.stdin.flush()

        for child in children:
            assert child.stdout.readline() == "ready\n"
        tell()
        results = [json.loads(child.stdout.readline()) for child in children]
        tell()
        for child in children:
            child.wait()
    times = sorted(1000 * one for result in results for one in result["times"])
    publishing = sorted(1000 * one for result in results for one in result["publishing"])
    return {
        "delivered": sum(result["drawn"] for result in results) / (nodes * nodes * count),
        "p50_ms": round(statistics.median(times), 1),
        "p99_ms": round(times[int(0.99 * len(times))], 1),
        "max_ms": round(times[-1], 1),
        "publish_p50_ms": round(statistics.median(publishing), 2),
        "publish_p99_ms": round(publishing[int(0.99 * len(publishing))], 2),
        "cpu_s_per_node": round(statistics.mean(result["cpu"] for result in results), 2),
        "rss_mb": round(max(result["rss"] for result in results), 1),
        "repaired": sum(result["repaired"] for result in results),
    }


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        kind, home, node, port, nodes, count, size, pause = sys.argv[2:]
        work(kind, Path(home), node, int(port), int(nodes), int(count), int(size), float(pause))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--size", type=int, default=20_000)
    parser.add_argument("--pause", type=float, default=0.05, help="seconds between a node's envelopes")
    parser.add_argument("--port", type=int, default=17447)
    options = parser.parse_args()
    settings = {"nodes": options.nodes, "count": options.count, "size": options.size, "pause": options.pause}
    result: dict[str, Any] = {"settings": settings | {"cores": os.cpu_count()}}
    for kind in options.kinds:
        result[kind] = measure(kind, options.port, **settings)
        print(kind, result[kind], flush=True)
    from common import facts, write  # only here: eight workers need no torch

    write(options.out, facts("cpu") | result)


if __name__ == "__main__":
    main()
