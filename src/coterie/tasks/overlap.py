"""Train and held-out tasks share no problem: a check that reads the questions themselves.

The published recipes' check read a field that their rows did not have, so it found nothing whatever the data (weakness W3). This
one compares `Task.question`, which every task has, and its tests plant a duplicate.
"""

import re
import unicodedata
from collections import defaultdict
from typing import Any

from coterie.tasks.base import TaskSet
from coterie.types import CoterieError

_DASH = re.compile("[‐‑‒–—−-]")
_HYPHEN = re.compile(r"(?<=[^\W\d_])-(?=[^\W\d_])")
_DROPPED = re.compile(r"""[.,;:?!'"`´‘’“”„«»…¿¡\s]+""")
_AROUND_SYMBOL = re.compile(r"\s*([^\w\s])\s*")
_NUMBER = re.compile(r"[0-9]+(?:[.,][0-9]+)*")
_WORDS = re.compile(r"[^\W\d_]+(?:\s+[^\W\d_]+)*")


def normalise(question: str) -> str:
    """`question` without what does not make it another problem: case, Unicode form, spacing, punctuation, kinds of dashes.

    Runs of whitespace and sentence punctuation become one space ("1.5" and "15" stay apart), spaces around other symbols go, and
    a hyphen between letters is a space. Operators and brackets are kept: "3-4" and "3/4" are two problems.
    """
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", question).casefold())
    text = _DROPPED.sub(" ", _DASH.sub("-", text))
    return _HYPHEN.sub(" ", _AROUND_SYMBOL.sub(r"\1", text)).strip()


def template(question: str) -> str:
    """`question` as a form to be filled in: every number in digits is 0, and every run of capitalised words is one name; then
    normalised. Two questions with one template are one problem told with other numbers about other people.

    A capital begins sentences too, so their first words are taken for names; number words ("twice") and pronouns stay.
    """

    def unnamed(found: re.Match[str]) -> str:
        kept = ["x" if word[0].isupper() else word for word in found.group().split()]
        return " ".join(word for i, word in enumerate(kept) if not (word == "x" and i and kept[i - 1] == "x"))

    return normalise(_WORDS.sub(unnamed, _NUMBER.sub("0", question)))


def overlap(task_set: TaskSet) -> dict[str, Any]:
    """How much of the held-out tasks is in train, for the record of a run: `questions`, the number of those whose normalised
    question is there (`check_overlap` refuses any), and `templates`, the share of those whose template is (None without tasks)."""
    asked = {normalise(task.question) for task in task_set.train}
    forms = {template(task.question) for task in task_set.train}
    held_out = task_set.held_out
    known = sum(template(task.question) in forms for task in held_out)
    return {
        "questions": sum(normalise(task.question) in asked for task in held_out),
        "templates": known / len(held_out) if held_out else None,
    }


def check_overlap(task_set: TaskSet) -> None:
    """Passes when no held-out task has the normalised question of a train task.

    Raises:
        CoterieError: with the number of held-out tasks that are also in train, and the ids of the first of them.
    """
    train = defaultdict(list)
    for task in task_set.train:
        train[normalise(task.question)].append(task.id)
    shared = [(task.id, train[key][0]) for task in task_set.held_out if (key := normalise(task.question)) in train]
    if shared:
        names = ", ".join(f"{held} (= {trained})" for held, trained in shared[:5]) + (", …" if len(shared) > 5 else "")
        raise CoterieError(
            f"{len(shared)} of {len(task_set.held_out)} held-out tasks ask the same question as a train task: {names}; remove them "
            "from one of the two, or the held-out score measures memory"
        )
