"""A results file of the published shape: three arms, three seeds, with holes where a real one may have them."""

import math
import random

from coterie.stats.compare import as_row, compare
from coterie.stats.holm import corrected

SCORES = {
    "off": {17: 0.0375, 18: 0.025, 19: 0.0242},
    "chat": {17: 0.4025, 18: 0.145, 19: 0.3475},
    "chat, no reply": {17: 0.11, 18: 0.14, 19: None},
}
START = {"off": 0.03, "chat": 0.17, "chat, no reply": 0.1}
CHANGE = {"off": "messages are not delivered", "chat": "messages are delivered", "chat, no reply": "[bold]one[/bold] message each"}


def curve(arm: str, seed: int, steps: int = 80) -> list[list[float | None]]:
    rng = random.Random(f"{arm} {seed}")
    start, end = START[arm], 1.25 * (SCORES[arm][seed] or 0.12)
    points = []
    for step in range(1, steps + 1):
        level = start + (end - start) / (1 + math.exp(-(step - 38) / 9))
        points.append([step, min(1.0, max(0.0, rng.gauss(level, 0.05 + 0.1 * level)))])
    points[5][1] = None
    return points


def run(arm: str, seed: int) -> dict:
    return {
        "score": SCORES[arm][seed],
        "held_out": 300,
        "episodes": 1200,
        "measures": {
            "shared": 0.9,
            "used": None if arm == "off" else 0.7,
            "asked": 0.1,
            "agree": 0.3,
            "message_chars": 570.4,
            "message_tokens": 150.0,
            "cut": {"0": 0.5, "1": 0.25},
        },
        "before": {"score": START[arm], "measures": {}},
        "cross_play": {} if arm == "off" else {"A=policy,B=base": {"score": 0.1417}, "A=base,B=policy": {"score": 0.12}},
        "minutes": {"train": 77.1, "evaluate": 5.0},
        "curve": curve(arm, seed),
    }


def results() -> dict:
    finished = {arm: {s: v for s, v in by_seed.items() if v is not None} for arm, by_seed in SCORES.items()}
    others = [arm for arm in finished if arm != "off"]
    family = corrected([compare(finished["off"], finished[arm]) for arm in others])
    return {
        "recipe": "talk-to-solve",
        "question": "Do two copies that each hold half of a problem learn to talk?",
        "model": "Qwen/Qwen2.5-1.5B-Instruct",
        "profile": "published",
        "metric": "team reward",
        "baseline": "off",
        "arms": {arm: {"change": CHANGE[arm], "seeds": {str(s): run(arm, s) for s in SCORES[arm]}} for arm in SCORES},
        "comparisons": [as_row(one, arm, "off") for arm, one in zip(others, family, strict=True)],
        "versions": {},
    }
