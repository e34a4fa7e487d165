"""Episodes with known scores, for tests of credit rules."""

import itertools

from coterie.types import POLICY, Episode, Group, Message, Task

TASK = Task(id="t", question="q", answer="1", ask="q")


def say(seat, turn, *, final=False, heard=(), score=None, player=POLICY, tokens=1, stop="eos"):
    return Message(seat, player, turn, final, (1, 2), (3,) * tokens, (-0.5,) * tokens, stop, "x", 1.0, 0, tuple(heard), score)


def episode(messages, index=0, failed=False):
    scores = {m.seat: m.score for m in messages if m.final}
    cast = {m.seat: m.player for m in messages}
    if failed:
        return Episode("t", index, cast, tuple(messages), {}, None, {"": "no grade"})
    return Episode("t", index, cast, tuple(messages), scores, sum(scores.values()) / len(scores))


def board(answers, notes=None, visible=None, index=0, failed=False):
    """Copies post a note each; reader j hears the notes j, j + 1, ... (`visible` of them). Scores of readers and of notes."""
    n = len(answers)
    posted = [say(f"writer {i}", i, score=notes[i] if notes else None) for i in range(n)]
    heard = [tuple((j + k) % n for k in range(visible or n)) for j in range(n)]
    return episode(
        [*posted, *(say(f"reader {j}", n + j, final=True, heard=heard[j], score=s) for j, s in enumerate(answers))], index, failed
    )


def chat(a, b, index=0, partner=POLICY, failed=False):
    """A B A B with the scores of both answers; `partner` sits in B."""
    said = [
        say("A", 0),
        say("B", 1, heard=(0,), player=partner),
        say("A", 2, final=True, heard=(0, 1), score=a),
        say("B", 3, final=True, heard=(0, 1, 2), score=b, player=partner),
    ]
    return episode(said, index, failed)


def group(*episodes, pool=None):
    return Group(TASK, tuple(episodes), tuple(episodes if pool is None else pool))


def bits(*chances):
    """Every outcome of independent yes-or-no events, with its probability."""
    for outcome in itertools.product((0, 1), repeat=len(chances)):
        weight = 1.0
        for bit, chance in zip(outcome, chances, strict=True):
            weight *= chance if bit else 1 - chance
        yield outcome, weight
