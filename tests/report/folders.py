"""Folders of finished runs for the tests of the report: committed records, and run folders that hold conversations."""

import json
import shutil
from pathlib import Path

from coterie import builtin  # noqa: F401 (registers the kinds)
from coterie.experiment import untrained
from coterie.recipe import load_recipe, recipes_folder, resolve
from coterie.runs import RunFolder

RECORDS = recipes_folder() / "talk-to-solve" / "results" / "pocket"

HOSTILE = (
    '<script>document.title = "run"</script><img src="http://192.0.2.1/x" onerror="document.title = \'run\'">'
    "\x1b[31m\u202e12 </script><!--"
)
"""Markup, a terminal sequence, a change of writing direction, and the end of a script element."""


def records(folder: Path) -> Path:
    """A copy of the committed records of talk-to-solve."""
    shutil.copytree(RECORDS, folder)
    return folder


def record(arm: str, seed: int | str) -> dict:
    name = f"{arm}-{seed}" if isinstance(seed, str) else f"{arm}-seed{seed}"
    return json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))


def conversation(number: int, first: str, final: str = "\\boxed{19}", reward: float | None = 1.0) -> dict:
    """As `scoring` writes one: A is told 12, B is told 7."""

    def line(turn: int, seat: str, text: str, last: bool) -> dict:
        heard = list(range(turn))
        said = {"turn": turn, "seat": seat, "player": "policy", "final": last, "text": text, "stop": "eos", "tokens": 5}
        return {**said, "heard": heard, "score": reward if last else None}

    return {
        "task_id": f"made-up-{number}",
        "episode": 0,
        "cast": {"A": "policy", "B": "policy"},
        "reward": reward,
        "scores": {} if reward is None else {"A": reward, "B": reward},
        "errors": {},
        "messages": [line(0, "A", first, False), line(1, "B", "and I have 7", False), line(2, "A", final, True)],
        "ask": "How many marbles are there?",
        "question": "Ann has 12 marbles. Ben has 7. How many marbles are there?",
        "facts": {"A": ["Ann has 12 marbles."], "B": ["Ben has 7."]},
    }


def run_folders(folder: Path, conversations: dict[str, list[dict]]) -> Path:
    """Run folders of talk-to-solve with committed results; `conversations` names them: "chat-seed17", "chat-untrained"."""
    recipe = load_recipe("talk-to-solve")
    for name, held_out in conversations.items():
        arm, _, seed = name.rpartition("-")
        number = 0 if seed == "untrained" else int(seed.removeprefix("seed"))
        config = resolve(recipe, profile="pocket", arm=arm, seed=number, overrides={})
        run = RunFolder(folder / name)
        run.create(untrained(config) if seed == "untrained" else config)
        shutil.copy(RECORDS / f"{name}.json", run.result_file)
        lines = "".join(json.dumps(one) + "\n" for one in held_out)
        (run.path / "evaluation.jsonl").write_text(lines, encoding="utf-8")
    return folder
