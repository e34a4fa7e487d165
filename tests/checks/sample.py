"""A sound run, as the checks see it, to plant one fault at a time in."""

from dataclasses import replace
from typing import Any

from coterie.checks import CHECKS, Evidence
from coterie.checks.base import Record

SAMPLER = {"temperature": 1.0, "top_p": 1.0, "top_k": 0}


def record(arm: str = "chat", seed: int = 17, deliver: bool = True, score: float = 0.6, **other: Any) -> dict[str, Any]:
    """A finished run; ten held-out tasks, of which the first six are solved and the others not."""
    measures = {
        "message_tokens": 20.0,
        "final_tokens": 30.0,
        "cut_by_turn": {"0": 0.0, "1": 0.01},
        "boxed": 0.95,
        "shared": 0.8,
        "used": 0.7,
        "unheard": 0.03,
        "asked": 0.5,
        "agree": None,
    }
    return {
        "recipe": "talk",
        "profile": "pocket",
        "arm": arm,
        "seed": seed,
        "steps": 40,
        "cross_play": {},
        "conditions": {"protocol": {"kind": "chat", "deliver": deliver}, "evaluate": {"sampling": None}},
        "score": score,
        "episodes": 100,
        "held_out": 10,
        "grading_errors": 0,
        "ungraded_tasks": 0,
        "per_task": {f"t{i}": [float(i < round(10 * score))] for i in range(10)},
        "sampling": {"train": {"temperature": 1.0}, "evaluate": SAMPLER},
        "overlap": {"questions": 0, "templates": 0.0},
        "measures": measures,
        **other,
    }


def measured(of: Record, **measures: Any) -> dict[str, Any]:
    return {**of, "measures": {**of["measures"], **measures}}


def conversation(*texts: str, heard: bool = True) -> dict[str, Any]:
    """A and B in turn; the last message of each is final."""
    said = [
        {
            "turn": turn,
            "seat": "AB"[turn % 2],
            "final": turn >= len(texts) - 2,
            "text": text,
            "heard": [*range(turn)] if heard else [],
        }
        for turn, text in enumerate(texts)
    ]
    asked = {"ask": "How many pens do they have together?", "question": "Tom has 3 pens. Sue has 4 pens. How many pens?"}
    return {"task_id": "t0", "messages": said, "facts": {"A": ["Tom has 3 pens."], "B": ["Sue has 4 pens."]}, **asked}


PLAIN = conversation("I have 3 pens.", "I have 4.", "So \\boxed{7}", "So \\boxed{7}")

BEFORE = {**record(score=0.2), "steps": 0, "seed": 0, "repeats": [0.2, 0.22, 0.18]}
OFF = measured(record("off", deliver=False), shared=0.1, used=0.1)
RUN = record()
SOUND = Evidence(
    record=RUN,
    before=BEFORE,
    metrics=[{"step": i + 1, "reward": 0.2 + 0.01 * i, "episodes": 32, "grading_errors": 0} for i in range(40)],
    conversations=[PLAIN] * 4,
    before_conversations=[PLAIN] * 4,
    siblings=[RUN, OFF],
)


def found(name: str, **planted: Any) -> tuple[str, str]:
    """What check `name` says of the sound run with other evidence."""
    return CHECKS[name](replace(SOUND, **planted))


def status(name: str, **planted: Any) -> str:
    return found(name, **planted)[0]
