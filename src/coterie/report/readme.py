"""Figures in the project's own README, made from the records and never typed:

    <!-- scores: RECIPE/FOLDER -->        a table of scores and the verdicts, up to
    <!-- end of scores -->
    <!-- of RECIPE/FOLDER: ARM BASELINE -->scores, difference, verdict<!-- end -->
    <!-- bench FILE: PATH FORMAT -->one number of bench/results/FILE<!-- end -->

`python -m coterie.report.readme README.md` writes them anew; a test holds the README to the records.
"""

import re
import sys
from pathlib import Path
from typing import Any

from coterie.experiment import summarise
from coterie.recipe import load_recipe
from coterie.records import read_json
from coterie.report.markdown import scores
from coterie.report.results import Results, arm_mean
from coterie.types import CoterieError

_SCORES = re.compile(r"(<!-- scores: ([\w-]+)/([\w.-]+) -->\n).*?(<!-- end of scores -->)", re.DOTALL)
_OF = re.compile(r"(<!-- of ([\w-]+)/([\w.-]+): ([\w.+-]+) ([\w.+-]+) -->).*?(<!-- end -->)")
_BENCH = re.compile(r"(<!-- bench ([\w.-]+): (\S+) (\S+) -->).*?(<!-- end -->)")


def fill(text: str, root: Path) -> str:
    """`text`, the README of the project in `root`, with each figure made anew."""
    text = _SCORES.sub(lambda m: f"{m[1]}\n{_block(_results(root, m[2], m[3]))}\n\n{m[4]}", text)
    text = _OF.sub(lambda m: f"{m[1]}{_pair(_results(root, m[2], m[3]), m[4], m[5])}{m[6]}", text)
    return _BENCH.sub(lambda m: f"{m[1]}{_number(root / 'bench' / 'results' / m[2], m[3], m[4])}{m[5]}", text)


def _results(root: Path, recipe: str, folder: str) -> Results:
    path = root / "recipes" / recipe
    return summarise(load_recipe(str(path)), path / "results" / folder)


def _block(results: Results) -> str:
    return "\n\n".join([scores(results), *(str(row["sentence"]) for row in results["comparisons"])])


def _pair(results: Results, arm: str, baseline: str) -> str:
    """Of a comparison by the held-out score."""
    rows = [r for r in results["comparisons"] if (r["arm"], r["baseline"], r["metric"]) == (arm, baseline, "score")]
    if not rows:
        raise CoterieError(f"README: {results['recipe']} does not compare {arm} with {baseline}")
    (row,) = rows
    means = ", ".join(f"{name} {arm_mean(results, name, 'score'):.3f}" for name in (arm, baseline))
    interval = "" if row["interval"] is None else " [{:+.3f}, {:+.3f}]".format(*row["interval"])
    return f"{means}: {row['delta']:+.3f}{interval} over {row['n']} seed{'s' * (row['n'] != 1)}, *{row['verdict']}*"


def _number(file: Path, path: str, form: str) -> str:
    found: Any = read_json(file)
    for key in path.split("."):
        found = found[key]
    return format(found, form)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        file = Path(name)
        file.write_text(fill(file.read_text(encoding="utf-8"), file.resolve().parent), encoding="utf-8")
