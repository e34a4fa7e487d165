"""One engine out of two: the one that lives with the learner, and the players that are reached by text."""

from coterie.engines.base import Completion, Engine, Request
from coterie.engines.remote import RemoteEngine


class Switchboard:
    """Sends each request to whoever plays it. While the local engine has something to decode, nobody waits for a server.

    The order in which completions come then depends on timing, and with it the batches of the local engine, so a run with a remote
    partner repeats only up to rounding, and only as far as the partner repeats itself.
    """

    def __init__(self, local: Engine, remote: RemoteEngine):
        self.policy_version, self.context_length = local.policy_version, local.context_length
        self._local, self._remote = local, remote
        self._tickets: dict[tuple[bool, int], int] = {}
        self._given = 0

    def submit(self, request: Request) -> int:
        away = request.player in self._remote.players
        inner = (self._remote if away else self._local).submit(request)
        self._given += 1
        self._tickets[away, inner] = self._given
        return self._given

    def step(self) -> list[tuple[int, Completion]]:
        done: list[tuple[int, Completion]] = []
        at_home = any(not away for away, _ in self._tickets)
        if at_home:
            done += [(self._tickets.pop((False, inner)), completion) for inner, completion in self._local.step()]
        if self._remote.busy:
            found = self._remote.step(patience=0.0 if at_home else None)
            done += [(self._tickets.pop((True, inner)), completion) for inner, completion in found]
        return done

    def refresh(self, version: int) -> None:
        self._remote.refresh(version)
        self._local.refresh(version)
        self.policy_version = version
