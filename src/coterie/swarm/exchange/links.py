"""How zenoh's links are made: who listens, who dials, and the defaults that must not stay as they are. Seen with 1.10.2."""

import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from coterie.types import CoterieError


def load() -> Any:
    try:
        import zenoh
    except ImportError as error:
        raise CoterieError("the zenoh exchange needs eclipse-zenoh: pip install 'coterie[swarm]'") from error
    return zenoh


def one_host(port: int) -> dict[str, tuple[str, ...]]:
    """The same `listen` and `hubs` for every process of one machine: the first one owns the port, the next after its death."""
    return {"listen": (f"tcp/127.0.0.1:{port}", "tcp/127.0.0.1:0"), "hubs": (f"tcp/127.0.0.1:{port}",)}


def links(listen: Sequence[str], hubs: Sequence[str], max_body: int) -> dict[str, Any]:
    """zenoh's settings by key. Who listens is a peer, who does not a client: peers do not relay for peers, they do for clients."""
    if not listen and not hubs:
        raise CoterieError(
            "a zenoh exchange needs `listen` (when others can reach this machine) or `hubs` (endpoints of those who can)"
        )
    for endpoint in listen:
        if "/0.0.0.0:" in endpoint or "/[::]:" in endpoint:
            raise CoterieError(
                f"listen = {endpoint!r}: give the address at which others reach this machine; zenoh does not tell them"
            )
    if not listen and len(hubs) == 1:
        warnings.warn(f"{hubs[0]} is the only hub: when it is away this node is alone. Give two or more in `hubs`", stacklevel=3)
    return {
        "mode": "peer" if listen else "client",
        "listen/endpoints": list(listen),
        "connect/endpoints": list(hubs),
        "connect/timeout_ms": 0,
        "connect/exit_on_failure": False,
        "listen/exit_on_failure": False,  # processes of one machine share a configuration: who comes second finds the port taken
        "scouting/multicast/enabled": False,  # finds whoever is on the same network, asked or not
        "transport/shared_memory/enabled": False,  # 190 MB a process instead of 30, p99 57 ms instead of 4
        "transport/link/rx/max_message_size": max_body + 65536,  # what is larger is dropped, and the link stays
    }


def to_config(zenoh: Any, settings: Mapping[str, Any]) -> Any:
    config = zenoh.Config()
    for key, value in settings.items():
        try:
            config.insert_json5(key, json.dumps(value))
        except zenoh.ZError as error:
            raise CoterieError(f"zenoh does not take {key} = {value!r} ({error}): see its documentation for the setting") from error
    return config
