"""References to tasks, and tasks from references: what keeps a swarm's truth at home.

SAPO's released system (genrl) sends question, answer and scorer with the rollouts, so whoever sends "the answer is 999" is
believed. Here a reference is sent and the receiver makes question and answer itself; what it cannot make, it does not train on. A
reference is a stranger's too: the settings in it must be among those that the receiver accepts, since settings can ask for a
problem of any size, and a held-out question is refused, since a swarm must not teach what its members are scored on.
"""

from collections.abc import Collection, Iterable

from coterie.swarm.words import TaskRef
from coterie.tasks import pocket_specialties as pocket
from coterie.tasks import reasoning_gym as gym
from coterie.types import CoterieError, Task

Accepted = Collection[tuple[str, str]]
"""Pairs of a source and its settings, as in a `TaskRef`."""

RELEASED: Accepted = frozenset(
    [(f"{gym.SOURCE}/{name}", gym.canonical(settings)) for name, settings in gym.RELEASED.items()]
    + [(f"{pocket.SOURCE}/{family}", pocket.canonical(seats)) for family in pocket.OF_FAMILY for seats in ((), ("A", "B"))]
)
"""What is accepted unless said otherwise: SAPO's nine specialties as released; the pocket families, undealt or dealt to A and B."""

LARGEST_SEED = 2**63


def reference(task: Task) -> TaskRef | None:
    """What to send of a task; None for one that cannot be made from a reference."""
    known = task.meta.get("reference")
    return None if known is None else TaskRef(**known)


def accepted(tasks: Iterable[Task]) -> Accepted:
    """The sources and settings of a node's own tasks: to be accepted from others, add them to `RELEASED` or use them alone."""
    refs = (reference(task) for task in tasks)
    return frozenset((ref.source, ref.config) for ref in refs if ref is not None)


def regenerate(ref: TaskRef, accept: Accepted = RELEASED) -> Task | None:
    """The task that `ref` names, or None where it cannot be made here (`task_or_reason` says why). Never raises."""
    task = task_or_reason(ref, accept)
    return task if isinstance(task, Task) else None


def task_or_reason(ref: TaskRef, accept: Accepted = RELEASED) -> Task | str:
    """The task of `ref`, or why there is none, for people. Costs 15 to 130 microseconds, 0.8 ms for bf."""
    if (ref.source, ref.config) not in accept:
        known = any(source == ref.source for source, _ in accept)
        return f"the settings of {ref.source} are not those accepted here" if known else "the source is not accepted here"
    if not (type(ref.seed) is int and type(ref.index) is int and 0 <= ref.seed < LARGEST_SEED and 0 <= ref.index < gym.BLOCK):
        return "the seed or index is out of range"
    source, _, name = ref.source.partition("/")
    try:
        version = {pocket.SOURCE: lambda: pocket.VERSION, gym.SOURCE: gym.version}.get(source)
        if version is None:
            return f"there is no source {source}"
        if version() != ref.version:
            return f"it is of {source} {ref.version[:20]}, here is {version()}"
        task = (pocket if source == pocket.SOURCE else gym).item(name, ref.config, ref.seed, ref.index)
    except CoterieError as error:  # the extra is not installed
        return str(error)
    if isinstance(task, Task) and task.meta["split"] == "held_out":
        return "its question is held out"
    return task
