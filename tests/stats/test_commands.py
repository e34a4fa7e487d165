"""`coterie compare --published`, `--variance`, `--pass` and `coterie plan`, from words to what is printed."""

import json
from pathlib import Path

import numpy as np
import pytest

from coterie.recipe import recipes_folder
from tests.commands import cli  # noqa: F401 (fixture)

PUBLISHED = Path(__file__).parents[1] / "data" / "published.json"
ONE_EPISODE = recipes_folder() / "talk-methods" / "results" / "pocket"
TWO_EPISODES = recipes_folder() / "talk-to-solve" / "results" / "qwen2.5-coder-1.5b"
SWARM = recipes_folder() / "sapo" / "results" / "smollm2-135m"


@pytest.mark.parametrize("width", ["80", "120"])
def test_published_comparisons_stand_beside_ours(cli, monkeypatch, tmp_path, width):  # noqa: F811
    monkeypatch.setenv("COLUMNS", width)
    code, said = cli("compare", "--published", PUBLISHED, "--json", tmp_path / "out.json")
    assert code == 0
    for part in ("chat − off", "+0.269 +0.365", "-0.056 to +0.595 +0.321 to +0.409", "unresolved moved"):
        assert part in said
    assert "if the spread stays the same, about 5 seeds would settle it" in said
    assert "…" not in said
    rows = json.loads((tmp_path / "out.json").read_text())["comparisons"]
    assert rows[0]["printed"]["verdict"] == "moved"


def test_the_spread_is_split_for_arms_and_differences(cli, tmp_path):  # noqa: F811
    code, said = cli("compare", TWO_EPISODES, "--variance", "--json", tmp_path / "out.json")
    assert code == 0
    assert "chat (3 seeds × 300 tasks × 2 episodes)" in said
    of = {row["of"]: row["components"] for row in json.loads((tmp_path / "out.json").read_text())["variance"]}
    assert set(of) == {"off", "chat", "chat − off"}
    scores = [json.loads(file.read_text())["score"] for file in sorted(TWO_EPISODES.glob("chat-seed*.json"))]
    c = of["chat"]
    made = c["seed"] + c["seed_task"] / c["tasks"] + c["sampling"] / (c["tasks"] * c["episodes"])
    assert made == pytest.approx(np.var(scores, ddof=1), rel=1e-6)


def test_pass_at_k_of_the_records(cli, tmp_path):  # noqa: F811
    """Against a count over the records themselves: with two episodes, pass@2 is that one is right, pass^2 that both are."""
    code, said = cli("compare", TWO_EPISODES, "--pass", 2, "--json", tmp_path / "out.json")
    assert code == 0
    assert "pass@2" in said
    assert "pass^2" in said
    (row,) = [row for row in json.loads((tmp_path / "out.json").read_text())["passes"] if row["arm"] == "chat"]
    any_right, all_right = [], []
    for file in TWO_EPISODES.glob("chat-seed*.json"):
        tasks = json.loads(file.read_text())["per_task"].values()
        any_right.append(np.mean([max(of) == 1 for of in tasks]))
        all_right.append(np.mean([min(of) == 1 for of in tasks]))
    assert row["pass_at_k"]["mean"] == pytest.approx(np.mean(any_right))
    assert row["pass_hat_k"]["mean"] == pytest.approx(np.mean(all_right))
    assert (row["seeds"], row["left_out"]) == (3, 0)


def test_a_plan_from_numbers(cli):  # noqa: F811
    code, said = cli("plan", "--sd", 0.05, "--effect", 0.05, "--minutes", 100, "--minutes-per-run", 7.5, "--workers", 2)
    assert code == 0
    for part in ("7 paired seeds", "with 80 % power: 10 paired seeds", "13 seeds fit", "would see an effect of 0.04"):
        assert part in said
    code, said = cli("plan", "--sd", 0.05, "--effect", 0.05, "--comparisons", 4, "--json")
    found = json.loads(said)
    assert (code, found["plans"][0]["for_power"], found["comparisons"]) == (0, 15, 4)
    assert "two seeds are the least" in cli("plan", "--sd", 0.05, "--minutes", 20, "--minutes-per-run", 9)[1]


def test_a_plan_from_finished_runs(cli):  # noqa: F811
    """The sd of the differences, the minutes of a run and the number of comparisons are those of the records."""
    code, said = cli("plan", "--from", ONE_EPISODE, "--minutes", 60, "--json")
    found = json.loads(said)
    by_seed = [
        {json.loads(file.read_text())["seed"]: json.loads(file.read_text()) for file in ONE_EPISODE.glob(f"{arm}-seed*.json")}
        for arm in ("grpo", "raft")
    ]
    differences = [by_seed[1][seed]["score"] - of["score"] for seed, of in by_seed[0].items()]
    (raft,) = [one for one in found["plans"] if one["of"] == "raft − grpo"]
    assert raft["sd"] == pytest.approx(np.std(differences, ddof=1))
    assert (code, found["comparisons"], found["effect"]) == (0, 4, 0.05)
    minutes = [sum(of["minutes"].values()) for of in by_seed[0].values()]
    assert found["budget"]["minutes_by_arm"] == pytest.approx([np.mean(minutes), *found["budget"]["minutes_by_arm"][1:]])
    assert len(found["budget"]["minutes_by_arm"]) == 5
    assert "true one" in cli("plan", "--from", ONE_EPISODE)[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["compare"], "folder of runs, or --published"),
        (["compare", ONE_EPISODE, "--published", PUBLISHED], "one of the two"),
        (["compare", "--published", PUBLISHED, "--variance"], "--json only"),
        (["compare", "--published", "nowhere.json"], "nowhere.json: there is no such file"),
        (["compare", ONE_EPISODE, "--pass", 2], "which are 1"),
        (["compare", ONE_EPISODE, "--pass", 0], "pass@0"),
        (["compare", SWARM, "--variance"], "is a swarm"),
        (["compare", SWARM, "--pass", 1], "is a swarm"),
        (["plan"], "--sd, or --from"),
        (["plan", "--sd", 0.05], "--effect"),
        (["plan", "--sd", 0.05, "--minutes", 10], "--minutes-per-run"),
        (["plan", "--sd", -1, "--effect", 0.05], "sd"),
        (["plan", "--from", SWARM], "give --sd"),
    ],
)
def test_what_cannot_be_done_is_refused(cli, words, said):  # noqa: F811
    code, printed = cli(*words)
    assert code == 2
    assert said in printed
