"""Only runs that differ in seed, or in what the recipe's arms differ in, are compared."""

import copy
import json
from pathlib import Path

import pytest

from coterie.experiment import declared
from coterie.recipe import load_recipe, resolve
from coterie.results import check_comparable, comparisons, gather, keep_records, metric_of, read_records, rewards_by_arm
from coterie.types import CoterieError

TALK = load_recipe("talk-to-solve")
FOLDER = Path("folder")


def record(arm="chat", seed=17, steps=60, **settings):
    config = resolve(TALK, profile="pocket", arm=arm, seed=seed, overrides=settings)
    return {
        "recipe": "talk-to-solve", "profile": "pocket", "arm": arm, "seed": seed, "steps": steps, "score": 0.5, "cross_play": {},
        "conditions": config.conditions(),
    }  # fmt: skip


def check(*records):
    check_comparable(FOLDER, records, declared(TALK))


def test_arms_and_seeds_of_one_experiment_are_comparable():
    check(record("off"), record("chat"), record("chat", 18), record("off", 0, steps=0), record("chat", 0, steps=0))


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"train": {"steps": 5}}, "train.steps"),
        ({"tasks": {"held_out": 20}}, "tasks.held_out"),
        ({"sampling": {"temperature": 0.9}}, "sampling.temperature"),
        ({"evaluate": {"sampling": {"temperature": 0.0}}}, "evaluate.sampling"),
        ({"grading": {"boxed_only": True}}, "grading.boxed_only"),
        ({"model": {"path": "other"}}, "model.path"),
    ],
)
def test_other_settings_are_not(settings, key):
    with pytest.raises(CoterieError, match=f"chat-seed18 cannot be compared with off, seed 17: they differ in .*{key}"):
        check(record("off"), record("chat", 18, **settings))


def test_what_only_affects_speed_does_not_matter():
    check(record("off"), record("chat", 18, train={"tokens_per_micro_batch": 99, "checkpoint_every": 3}, engine={"slots": 7}))


def test_one_run_twice_is_refused(tmp_path):
    for name in ("chat-seed17", "copy-of-it"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(json.dumps(record()))
    trained, _ = read_records(tmp_path)
    with pytest.raises(CoterieError, match="holds chat-seed17 twice"):
        check(*trained)


def test_within_an_arm_even_the_arms_own_setting_must_agree():
    odd = copy.deepcopy(record("chat", 18))
    odd["conditions"]["protocol"]["deliver"] = False
    with pytest.raises(CoterieError, match=r"differ in protocol\.deliver"):
        check(record("chat"), odd)


@pytest.mark.parametrize("content", ["[]", "{}", '{"arm": "chat"}'])
def test_files_of_something_else_are_named(tmp_path, content):
    (tmp_path / "chat-seed1.json").write_text(content)
    with pytest.raises(CoterieError, match=r"chat-seed1\.json: not the record of a run"):
        read_records(tmp_path)


def test_a_difference_that_was_there_before_training_is_said():
    """Two arms whose untrained models score 0.18 and 0.02, and that learned nothing, differ by 0.16 in every seed."""

    def arm(name, before, scores):
        seeds = {str(seed): {"score": score, "before": {"score": before}} for seed, score in scores.items()}
        return {"change": name, "seeds": seeds}

    arms = {"off": arm("off", 0.02, {1: 0.02, 2: 0.03, 3: 0.02}), "chat": arm("chat", 0.18, {1: 0.18, 2: 0.20, 3: 0.17})}
    (row,) = comparisons(arms, "off", 0.05)
    assert row["untrained_delta"] == pytest.approx(0.16)
    assert "Before training it was +0.160, so training made +0.000 of it." in row["sentence"]


PLANTED = {
    "base": [0.50, 0.52, 0.49, 0.51, 0.50],
    "better": [0.71, 0.70, 0.69, 0.73, 0.70],
    "worse": [0.30, 0.33, 0.28, 0.32, 0.31],
    "same": [0.505, 0.515, 0.495, 0.505, 0.50],
    "copy": [0.50, 0.52, 0.49, 0.51, 0.50],
    "slight": [0.53, 0.53, 0.53, 0.52, 0.55],  # alone p = 0.024
}


def gathered(scores, extra=None, **settings):
    """The comparisons of a recipe whose arms have these scores, arm to seed to score; the first arm is the baseline."""
    trained = [
        {**record(seed=seed), "arm": arm, "model": "pocket", "sampling": {}, "score": score, **(extra or {})}
        for arm, by_seed in scores.items()
        for seed, score in by_seed.items()
    ]
    known = {"title": "", "question": "", "baseline": next(iter(scores)), "changes": dict.fromkeys(scores, "")}
    rows = gather(trained, {}, min_effect=0.05, **known, **settings)["comparisons"]
    return {(row["arm"], row["baseline"], row["metric"]): row for row in rows}


def seeded(*names, first=17):
    return {name: dict(enumerate(PLANTED[name], first)) for name in names}


def test_planted_verdicts():
    """A regression is said to have moved the wrong way, a gain to have moved, and two arms that do the same, no change, with what
    these seeds would have seen."""
    rows = gathered(seeded("base", "better", "worse", "same", "copy"))
    found = {arm: row["verdict"] for (arm, _, _), row in rows.items()}
    assert found == {
        "better": "moved",
        "worse": "moved the wrong way",
        "same": "no change detected",
        "copy": "no change detected",
    }
    same = rows["same", "base", "score"]
    assert 0 < same["smallest_effect"] < 0.05
    assert f"would have seen a change of {same['smallest_effect']:.3f}" in same["sentence"]
    assert (same["equivalence"]["no_worse"], same["equivalence"]["equivalent"]) == (True, True)
    assert "would have seen a change of 0.000" in rows["copy", "base", "score"]["sentence"]


def test_a_planted_imbalance_of_seeds_is_unpaired_and_said():
    scores = seeded("base") | seeded("better", first=30)
    row = gathered(scores)["better", "base", "score"]
    assert (row["paired"], row["p_method"], row["verdict"]) == (False, "Welch's t test, unpaired", "moved")
    assert "not paired" in row["sentence"]
    many = {"base": {17: 0.5, 18: 0.51}, "better": {seed: 0.7 + seed / 1000 for seed in range(17, 25)}}
    assert gathered(many)["better", "base", "score"]["paired"] is False


def test_one_planted_seed_is_unresolved():
    row = gathered({"base": {17: 0.1}, "better": {17: 0.9}})["better", "base", "score"]
    assert (row["verdict"], row["n"], row["p_t"], row["p_holm"]) == ("unresolved", 1, None, None)
    assert "at least two seeds" in row["sentence"]


def test_the_comparisons_of_one_metric_are_one_family():
    """Alone `slight` moved; among four comparisons, one of them with another arm than the baseline, it is not settled."""
    alone = gathered(seeded("base", "slight"))["slight", "base", "score"]
    assert (alone["verdict"], alone["family"]) == ("moved", 1)
    rows = gathered(seeded("base", "slight", "same", "copy"), also_against={"copy": ["same"], "base": ["slight"]})
    assert len(rows) == 4
    slight = rows["slight", "base", "score"]
    assert (slight["verdict"], slight["family"]) == ("unresolved", 4)
    assert slight["p_holm"] == pytest.approx(4 * alone["p_t"])
    assert slight["interval"] == alone["interval"]
    assert "among 4 comparisons" in slight["sentence"]


def test_metrics_are_corrected_apart():
    extra = {"cross_play": {"a": {"score": 0.5, "measures": {}}}}
    rows = gathered(seeded("base", "slight"), metrics=["score", "cross_play"], extra=extra)
    assert (rows["slight", "base", "score"]["family"], rows["slight", "base", "score"]["verdict"]) == (1, "moved")
    assert rows["slight", "base", "cross_play"]["family"] == 1


def test_rewards_by_task_come_from_runs_that_have_them():
    with_rewards = record() | {"per_task": {"t": [1.0, 0.0]}}
    assert rewards_by_arm([with_rewards]) == {"chat": {17: {"t": [1.0, 0.0]}}}
    with pytest.raises(CoterieError, match="chat-seed17 holds no rewards by task"):
        rewards_by_arm([record()])
    with pytest.raises(CoterieError, match="chat-seed17 is a swarm"):
        rewards_by_arm([with_rewards | {"swarm": {"reward": 1}}])


def test_names_that_would_leave_the_folder_are_refused(tmp_path):
    text = (TALK.path).read_text()
    path = tmp_path / "mine.toml"
    path.write_text(text.replace("[arms.chat]", '[arms."a/b"]').replace("[arms.chat.settings", '[arms."a/b".settings'))
    with pytest.raises(CoterieError, match="arms"):
        load_recipe(str(path))


def test_more_seeds_join_the_committed_records_though_the_untrained_evaluation_was_made_again(tmp_path):
    """It differs in seconds, versions and, on a GPU, in the last digits of its score. The committed one stays as it is."""
    first = {**record("chat", 0, steps=0), "seconds": 3.1, "versions": {"torch": "1"}}
    again = {**record("chat", 0, steps=0), "seconds": 4.2, "versions": {"torch": "2"}, "score": 0.501}
    assert keep_records([record("chat", 17)], {"chat": first}, tmp_path) == 2
    keep_records([record("chat", 17), record("chat", 18)], {"chat": again}, tmp_path)
    assert json.loads((tmp_path / "chat-untrained.json").read_text()) == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["chat-seed17.json", "chat-seed18.json", "chat-untrained.json"]


@pytest.mark.parametrize(
    "other",
    [
        {"chat": record("chat", 0, steps=0, tasks={"held_out": 20})},  # other conditions
        {"chat": record("off", 0, steps=0) | {"score": 0.1}},  # another arm
        {"chat": record("chat", 0, steps=0) | {"profile": "laptop"}},
    ],
)
def test_an_untrained_evaluation_of_something_else_is_refused(tmp_path, other):
    keep_records([], {"chat": record("chat", 0, steps=0)}, tmp_path)
    with pytest.raises(CoterieError, match=r"chat-untrained\.json holds another record"):
        keep_records([record("chat", 17)], other, tmp_path)
    assert not (tmp_path / "chat-seed17.json").exists()


def test_a_trained_record_that_differs_is_refused_even_in_its_seconds(tmp_path):
    keep_records([{**record(), "seconds": 1}], {}, tmp_path)
    with pytest.raises(CoterieError, match="holds another record"):
        keep_records([{**record(), "seconds": 2}], {}, tmp_path)


def test_metrics_by_hand():
    """Breaks when a cast whose episodes could not be graded is left out of the mean in silence."""
    run = {"score": 0.5, "also": {"plain": {"score": 0.25}}, "cross_play": {"a": {"score": 0.2}, "b": {"score": 0.4}}}
    assert metric_of(run, "score") == 0.5
    assert metric_of(run, "cross_play") == pytest.approx(0.3)
    assert metric_of(run, "also.plain") == 0.25
    assert metric_of(run, "also.other") is None
    assert metric_of({**run, "cross_play": {"a": {"score": 0.2}, "b": {"score": None}}}, "cross_play") is None
