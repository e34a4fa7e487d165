"""A swarm's folder on one machine.

swarm.toml        name and exchange of the swarm, with which the next node of this folder begins
exchange.sqlite   what was shared, where one machine is all there is
nodes/NAME/       a run folder (`runs`), and in it
  swarm.toml      how this node reaches the others and whom it lets in; unlike config.toml it may change between its lives
  node.pem        its key
  store.sqlite    what was shared, where it came through a network or a shared folder
  status.json     what it was doing after its last round
  leave           somebody has asked it to end after its round
"""

import fcntl
import re
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from coterie.config import RunConfig
from coterie.config.exchange import MembershipConfig
from coterie.config_errors import describe
from coterie.records import disk_errors, read_json, write_text
from coterie.runs import RunFolder
from coterie.swarm.identity import load_identity
from coterie.types import CoterieError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class NodeFolder(RunFolder):
    def __init__(self, path: Path):
        super().__init__(path)
        self.membership_file = path / "swarm.toml"
        self.key_file = path / "node.pem"
        self.store_file = path / "store.sqlite"
        self.status_file = path / "status.json"
        self.leave_file = path / "leave"

    def membership(self) -> MembershipConfig:
        return read_membership(self.membership_file)

    @property
    def id(self) -> str:
        """The public key in hex."""
        return load_identity(self.key_file).node

    @property
    def running(self) -> bool:
        """Whether a process holds the folder's lock. Asking takes a shared lock for a moment, which `held` waits out."""
        try:
            file = open(self.path / ".lock")  # noqa: SIM115 (closed below)
        except OSError:
            return False
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
        return False

    @contextmanager
    def held(self) -> Iterator[None]:
        """`locked`, in the words of a swarm."""
        for attempt in range(5):
            lock = self.locked()
            try:
                lock.__enter__()
                break
            except CoterieError as error:
                if "another process" not in str(error):
                    raise
                if attempt == 4:
                    raise CoterieError(
                        f"{self.name} is running already; leave --node out to join with another node, or end it first "
                        f"with `coterie swarm leave {self.path.parent.parent} --node {self.name}`"
                    ) from None
                time.sleep(0.05)
        else:  # pragma: no cover (the loop breaks or raises)
            return
        try:
            yield
        finally:
            lock.__exit__(None, None, None)

    def state(self) -> dict[str, Any]:
        return read_json(self.state_file) if self.state_file.is_file() else {}

    def status(self) -> dict[str, Any]:
        return read_json(self.status_file) if self.status_file.is_file() else {}


class SwarmFolder:
    def __init__(self, path: Path):
        self.path = path
        self.file = path / "swarm.toml"

    @property
    def exists(self) -> bool:
        return self.file.is_file()

    def membership(self) -> MembershipConfig:
        return read_membership(self.file)

    def require(self) -> None:
        if not self.exists:
            raise CoterieError(
                f"{self.path} holds no swarm (it has no swarm.toml); begin one with `coterie swarm start {self.path}`, or join one "
                "on other machines with --hub or --shared"
            )

    def refuse_others(self) -> None:
        """A new swarm needs a folder that is empty or not there. Left over by a start that was killed may be nodes without
        configuration, which are no nodes."""
        if self.path.exists() and (
            not self.path.is_dir() or any(p.name not in ("nodes",) for p in self.path.iterdir()) or self.nodes()
        ):
            raise CoterieError(f"{self.path} is not empty and holds no swarm; choose another folder")

    def node(self, name: str) -> NodeFolder:
        if not _NAME.fullmatch(name):
            raise CoterieError(f"--node {name}: a name is 1 to 64 letters, digits, - _ and . and begins with a letter or digit")
        return NodeFolder(self.path / "nodes" / name)

    def nodes(self) -> list[NodeFolder]:
        """Those of this machine, node-2 before node-10."""
        found = [NodeFolder(file.parent) for file in self.path.glob("nodes/*/config.toml")]
        return sorted(found, key=lambda one: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", one.name)])

    def write(self, membership: MembershipConfig) -> None:
        write_membership(self.file, membership)

    def add(self, name: str | None, config: RunConfig, membership: MembershipConfig, seed: int | None) -> NodeFolder:
        """A new node: its key, and then its configuration, with which it becomes one.

        Without `seed` the training seed comes from the key, so that strangers with the same settings do not walk through the tasks
        in the same order.
        """
        folder = self._claim(name)
        seed = int(load_identity(folder.key_file).node[:8], 16) if seed is None else seed
        write_membership(folder.membership_file, membership)
        folder.create(config.model_copy(update={"seed": seed}))
        return folder

    def _claim(self, name: str | None) -> NodeFolder:
        """A folder that no other process has."""
        with disk_errors(self.path):
            (self.path / "nodes").mkdir(parents=True, exist_ok=True)
            if name is not None:
                folder = self.node(name)
                folder.path.mkdir(exist_ok=True)
                return folder
            number = 1
            while True:
                folder = self.node(f"node-{number}")
                try:
                    folder.path.mkdir()
                except FileExistsError:
                    number += 1
                else:
                    return folder


def read_membership(path: Path) -> MembershipConfig:
    try:
        return MembershipConfig.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise CoterieError(f"{path}: cannot be read ({error.strerror}); put a copy of it back") from None
    except ValidationError as error:
        raise CoterieError(f"{path}: {describe(error, MembershipConfig)}") from None
    except ValueError as error:
        raise CoterieError(f"{path}: not valid TOML ({error}); mend it, or put a copy of it back") from None


def write_membership(path: Path, membership: MembershipConfig) -> None:
    write_text(path, tomli_w.dumps(membership.model_dump(mode="json", exclude_none=True)))
