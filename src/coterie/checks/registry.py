"""All checks, in the order in which they are shown."""

from collections.abc import Callable

from coterie.checks.base import Check, Evidence, Finding
from coterie.checks.chance import channel_off, invented_facts
from coterie.checks.learning import noise_floor, reward_and_score
from coterie.checks.talk import box, cut, degenerate, length
from coterie.checks.terms import grading, overlap, sampler

CHECKS: dict[str, Callable[[Evidence], Finding]] = {
    "overlap": overlap,
    "sampler": sampler,
    "grading": grading,
    "noise floor": noise_floor,
    "reward and score": reward_and_score,
    "length": length,
    "cut messages": cut,
    "box": box,
    "degenerate text": degenerate,
    "invented facts": invented_facts,
    "channel off": channel_off,
}


def check_run(evidence: Evidence) -> list[Check]:
    """Every check of one run."""
    return [Check(name, *find(evidence)) for name, find in CHECKS.items()]
