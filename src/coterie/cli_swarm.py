"""The commands `coterie swarm start`, `join`, `status` and `leave`."""

import contextlib
import json as jsonlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from coterie.cli_options import Flag, Plugins, Several
from coterie.types import CoterieError

if TYPE_CHECKING:
    from coterie.config import RunConfig
    from coterie.config.exchange import MembershipConfig
    from coterie.swarm.place import NodeFolder, SwarmFolder

swarm = App(
    name="swarm",
    help="Nodes that learn from each other's answers: start a swarm, join one, see what its nodes do, leave it (docs/swarm.md).",
)

Hubs = Annotated[tuple[str, ...], Parameter(name="--hub", consume_multiple=True, negative=(), show_default=False)]


@swarm.command
def start(
    folder: Path,
    /,
    *,
    recipe: str | None = None,
    arm: str | None = None,
    profile: str | None = None,
    model: str | None = None,
    set: Annotated[tuple[str, ...], Several] = (),
    rounds: int | None = None,
    node: str | None = None,
    nodes: int = 1,
    seed: int | None = None,
    listen: Annotated[tuple[str, ...], Several] = (),
    hub: Hubs = (),
    shared: Path | None = None,
    zenoh: Path | None = None,
    allow: Annotated[tuple[str, ...], Several] = (),
    plugin: Plugins = (),
) -> int:
    """Begin a swarm in a new folder and play its first node here, a line a round. The same call again goes on with its nodes.

    Parameters
    ----------
    folder
        A new folder, for all nodes of the swarm on this machine.
    recipe
        The recipe that says what is played, as in `coterie run`; sapo when absent.
    arm
        The recipe's arm; 4-4 (half of each round from others) where it has that one, else its baseline, when absent.
    profile
        As in `coterie run`.
    model
        As in `coterie run`.
    set
        As in `coterie run`; for example `--set swarm.name=lab`.
    rounds
        How many rounds a node plays (train.steps); the profile's when absent.
    node
        The node's name on this machine; node-1 when absent.
    nodes
        So many nodes at once, each a process, one a GPU in turn where there are any.
    seed
        The training seed, of the first node; made from the node's key when absent.
    listen
        Addresses at which others reach this node through zenoh, as tcp/ADDRESS:PORT.
    hub
        Addresses of nodes that listen.
    shared
        A folder that all machines have mounted, through which they share.
    zenoh
        A TOML file of zenoh's own settings, for example certificates.
    allow
        Keys of nodes to learn from; everybody's when absent.
    plugin
        As in `coterie run`.
    """
    from coterie.running import gpus
    from coterie.swarm.place import SwarmFolder
    from coterie.swarm.wanted import Links, Settled, further, refuse, swarm_of

    asked = Settled(recipe, arm, profile, model, set, rounds, plugin)
    place, links = SwarmFolder(folder), Links(listen, hub, shared, zenoh, allow)
    names = _names(place, nodes, node, seed)
    config = asked.resolved(gpus() > 0)
    membership = links.membership(swarm_of(config).name, words=asked.words)
    if place.exists:
        _refuse_another(place, config, membership, names, seed)
    else:
        place.refuse_others()
    refuse(config, membership)
    if not place.exists:
        place.write(membership)
    for i, name in enumerate(names):
        if not place.node(name).started:
            own = membership if i == 0 else membership.model_copy(update={"exchange": further(membership.exchange)})
            place.add(name, config, own, None if seed is None else seed + i)
    return _play(place, [place.node(name) for name in names])


@swarm.command
def join(
    folder: Path,
    /,
    *,
    recipe: str | None = None,
    arm: str | None = None,
    profile: str | None = None,
    model: str | None = None,
    set: Annotated[tuple[str, ...], Several] = (),
    rounds: int | None = None,
    node: str | None = None,
    nodes: int = 1,
    seed: int | None = None,
    listen: Annotated[tuple[str, ...], Several] = (),
    hub: Hubs = (),
    shared: Path | None = None,
    zenoh: Path | None = None,
    allow: Annotated[tuple[str, ...], Several] = (),
    plugin: Plugins = (),
) -> int:
    """Play another node of a swarm here, or go on with one that has ended or was killed (--node).

    Parameters
    ----------
    folder
        The folder of a swarm on this machine; or, with --hub or --shared, a new folder for a swarm that others began elsewhere.
    recipe
        As in `coterie swarm start`. In a folder that holds a swarm, what is not given is as its first node has it.
    arm
        As in `coterie swarm start`.
    profile
        As in `coterie swarm start`.
    model
        As in `coterie swarm start`; nodes may have different models.
    set
        As in `coterie swarm start`.
    rounds
        As in `coterie swarm start`.
    node
        A node of the folder that is to go on, with its key, round and checkpoint; or the name of the new one.
    nodes
        So many new nodes at once, as in `coterie swarm start`.
    seed
        As in `coterie swarm start`.
    listen
        As in `coterie swarm start`. A node that goes on may be given other addresses, hubs and keys than before.
    hub
        As in `coterie swarm start`.
    shared
        As in `coterie swarm start`.
    zenoh
        As in `coterie swarm start`.
    allow
        As in `coterie swarm start`.
    plugin
        As in `coterie run`.
    """
    from coterie.running import gpus
    from coterie.swarm.place import SwarmFolder, write_membership
    from coterie.swarm.wanted import Links, Settled, further, refuse, swarm_of

    asked = Settled(recipe, arm, profile, model, set, rounds, plugin)
    place, links = SwarmFolder(folder), Links(listen, hub, shared, zenoh, allow)
    if node is not None and place.exists and place.node(node).started:
        if asked.words or seed is not None or nodes != 1:
            raise CoterieError(
                f"{node} is a node of {folder} and keeps its settings; leave {asked.words or '--seed and --nodes'} out, or join as "
                "a new node"
            )
        there = place.node(node)
        changed = links.changed(there.membership())
        if changed != there.membership() and not there.finished:
            with there.held():
                refuse(there.config(), changed)
                write_membership(there.membership_file, changed)
        return _play(place, [there])
    _names(place, nodes, node, seed)
    if place.exists:
        there = place.nodes()
        config = asked.like(there[0].config(), gpus() > 0) if there else asked.resolved(gpus() > 0)
        old = place.membership()
        membership = links.changed(old.model_copy(update={"exchange": further(old.exchange)}))
    else:
        if links.exchange is None:
            place.require()
        place.refuse_others()
        config = asked.resolved(gpus() > 0)
        membership = links.membership(swarm_of(config).name, words=asked.words)
    refuse(config, membership)
    if not place.exists:
        place.write(membership)
    made: list[NodeFolder] = []
    for i in range(nodes):
        own = membership if i == 0 else membership.model_copy(update={"exchange": further(membership.exchange)})
        made.append(place.add(node, config, own, None if seed is None else seed + i))
    return _play(place, made)


@swarm.command
def status(folder: Path, /, *, json: Annotated[bool, Flag] = False) -> None:
    """Say what the nodes of a folder are doing, whom they hear, and what they dropped and why.

    Parameters
    ----------
    folder
        The folder of a swarm on this machine.
    json
        Print all of it as JSON; times are unix seconds.
    """
    from rich.console import Console

    from coterie.report.swarm import print_status
    from coterie.swarm.look import look
    from coterie.swarm.place import SwarmFolder

    place = SwarmFolder(folder)
    place.require()
    found = look(place)
    if json:
        print(jsonlib.dumps(found, indent=1, ensure_ascii=False))
    else:
        print_status(found, Console(highlight=False))


@swarm.command
def leave(folder: Path, /, *, node: str | None = None, wait: bool = True) -> None:
    """Ask this machine's nodes to end after their round, and wait until they have.

    Parameters
    ----------
    folder
        The folder of a swarm on this machine.
    node
        Only this node.
    wait
        Wait until they have ended.
    """
    from coterie.swarm.look import look
    from coterie.swarm.place import SwarmFolder
    from coterie.swarm.serve import wait_until_ended

    place = SwarmFolder(folder)
    place.require()
    if node is not None and not place.node(node).started:
        raise CoterieError(f"{folder} has no node {node}; it has {', '.join(one.name for one in place.nodes()) or 'none'}")
    chosen = place.nodes() if node is None else [place.node(node)]
    running = [one for one in chosen if one.running]
    for one in running:
        one.leave_file.touch()
    for one in running:
        if wait:
            _say(f"waiting for {one.name} to end its round")
            wait_until_ended(one)
            one.leave_file.unlink(missing_ok=True)
        else:
            _say(f"{one.name} ends after its round")
    if not running:
        _say("no node is running here")
    for one in look(place)["nodes"]:
        if not one["running"] and any(one["name"] == of.name for of in chosen):
            score = "" if one["score"] is None else f", score {one['score']:.3f}"
            kept = f"its key, history and checkpoint stay in {folder / 'nodes' / one['name']}"
            _say(f"{one['name']}: {one['round']} of {one['rounds']} rounds{score}; {kept}")


def _names(place: "SwarmFolder", nodes: int, node: str | None, seed: int | None) -> list[str]:
    if nodes < 1:
        raise CoterieError(f"--nodes {nodes}: give 1 or more")
    if nodes > 1 and node is not None:
        raise CoterieError("--node names one node; leave it out with --nodes")
    if seed is not None and seed < 0:
        raise CoterieError(f"--seed {seed}: a seed is a whole number from 0")
    names = [node] if node is not None else [f"node-{i + 1}" for i in range(nodes)]
    return [place.node(name).name for name in names]  # refuses what is no name


def _refuse_another(
    place: "SwarmFolder", config: "RunConfig", membership: "MembershipConfig", names: Sequence[str], seed: int | None
) -> None:
    """The same call goes on; another is a mistake, and is not mixed into the swarm that is there."""
    from coterie.config_errors import differences

    differing = differences(place.membership().model_dump(mode="json"), membership.model_dump(mode="json"))
    for i, name in enumerate(names):
        there = place.node(name)
        if there.started:
            of = there.config()
            wanted = config.model_copy(update={"seed": of.seed if seed is None else seed + i})
            differing += differences(of.model_dump(mode="json"), wanted.model_dump(mode="json"))
        elif i == 0 and place.nodes():  # without any, an earlier call was killed before it had made one
            differing.append("--node")
    if differing:
        raise CoterieError(
            f"{place.path} holds a swarm that was begun with other settings ({', '.join(dict.fromkeys(differing[:4]))}); add one "
            f"with `coterie swarm join {place.path}`, go on with one by --node, or choose another folder"
        )


def _play(place: "SwarmFolder", nodes: Sequence["NodeFolder"]) -> int:
    from coterie.swarm.serve import SUPERVISOR, play_node

    todo = [folder for folder in nodes if not folder.finished]
    if todo and SUPERVISOR not in os.environ:  # else it was said by who started this process
        for folder in todo:
            _introduce(place, folder)
        _tell_how_to_join(place, todo[0])
    if len(nodes) > 1:
        return _play_several(place, nodes)
    try:
        play_node(place, nodes[0], _say)
    except KeyboardInterrupt:
        again = f"coterie swarm join {place.path} --node {nodes[0].name}"
        _say(f"stopped at once; go on from the last checkpoint with `{again}`")
        return 130
    return 0


def _play_several(place: "SwarmFolder", nodes: Sequence["NodeFolder"]) -> int:
    from coterie.launch.local import gpu_sets
    from coterie.launch.nodes import play_nodes
    from coterie.running import gpus

    cpu = nodes[0].config().model.device == "cpu"
    cards = [] if cpu else gpu_sets(gpus(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    codes = play_nodes(place.path, [node.name for node in nodes], cards, _say, _say)
    ended = sum(code == 0 for code in codes.values())
    _say(f"{ended} of {len(nodes)} nodes ended well; `coterie swarm status {place.path}` shows what they did")
    return max((1 if code < 0 else code for code in codes.values()), default=130)


def _introduce(place: "SwarmFolder", folder: "NodeFolder") -> None:
    config = folder.config()
    was = "goes on" if folder.state_file.exists() else "is new"
    name = folder.membership().name
    _say(f"{folder.name} of swarm {name} in {place.path} {was}; its key is {folder.id}")
    _say(
        f"  recipe {config.recipe}, arm {config.arm}, profile {config.profile}: model {Path(config.model.path).name}, tasks "
        f"{config.tasks.kind}; {config.train.steps} rounds, seed {config.seed}"
    )


def _tell_how_to_join(place: "SwarmFolder", folder: "NodeFolder") -> None:
    from coterie.swarm.wanted import ways_to_join

    _say("  it waits for nobody: a round learns from its own answers and from what has come in by then")
    for line in ways_to_join(folder.membership(), place.path):
        _say(f"  others join with: {line}")
    _say(f"  to end after a round: Ctrl-C, or `coterie swarm leave {place.path}`")


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # the terminal or the pipe is gone: no reason to lose a round
        print(line, flush=True)
