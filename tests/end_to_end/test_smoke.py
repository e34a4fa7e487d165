"""`coterie run NAME --smoke`: every recipe that comes with coterie plays, trains and scores on its smallest scale."""

import json

import pytest

from coterie.recipe import load_recipe, recipe_names
from tests.commands import cli, here, tiny  # noqa: F401 (fixtures)


@pytest.mark.parametrize("name", recipe_names())
@pytest.mark.usefixtures("here", "tiny")
def test_every_recipe_plays(cli, tmp_path, name):  # noqa: F811
    """Breaks with a kind that does not play, a task source that does not fit the protocol, a row that cannot be learned from."""
    out = tmp_path / "smoke"
    code, text = cli("run", name, "--smoke", "--out", out, "--set", "evaluate.before=false")
    assert code == 0, text
    file = load_recipe(name).file
    for arm in file.arms:
        folder = out / f"{arm}-seed{file.seeds[0]}"
        steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert [step["step"] for step in steps] == [1, 2]
        assert all(step["rows"] > 0 and step["grading_errors"] == 0 for step in steps)
        record = json.loads((folder / "result.json").read_text())
        assert (record["held_out"], record["grading_errors"]) == (2, 0)
        assert 0 <= record["score"] <= 1
        kept = [path.relative_to(folder).parts[0] for path in folder.glob("**/checkpoints/step-000002")]
        assert kept, "the checkpoint is kept, or that of each node of a swarm"
        assert f"{arm}: 2 steps, " in text
    assert "there is no verdict" in text
    assert not (out / "results.json").exists()


def test_in_worker_processes_and_into_a_temporary_folder(cli, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    code, text = cli("run", "talk-to-solve", "--smoke", "--arm", "chat", "--set", "evaluate.before=false")
    assert code == 0, text
    (folder,) = tmp_path.iterdir()
    assert folder.name.startswith("coterie-smoke-talk-to-solve-")
    assert f"Its runs are in {folder}" in text
    assert [run.name for run in folder.iterdir()] == ["chat-seed17"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--steps", "3"], "--smoke decides about --steps itself; leave --steps out"),
        (["--steps", "0"], "--smoke decides about --steps itself"),
        (["--seeds", "17"], "--smoke decides about --seeds itself"),
        (["--profile", "pocket"], "--smoke decides about --profile itself"),
        (["--model", "pocket"], "--smoke decides about --model itself"),
        (["--resume"], "--smoke decides about --resume itself"),
        (["--set", "train.steps=3"], "--set train.steps contradicts --smoke"),
        (["--set", "model.path=pocket"], "--set model.path contradicts --smoke"),
        (["--set", "train.stepz=3"], "train.stepz is not a setting; did you mean train.steps"),
    ],
)
def test_what_contradicts_it_is_refused(cli, tmp_path, monkeypatch, words, message):  # noqa: F811
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    code, text = cli("run", "talk-to-solve", "--smoke", *words)
    assert code == 2
    assert message in text
    assert list(tmp_path.iterdir()) == []


def test_a_recipe_without_the_built_in_model_is_refused(cli, tmp_path):  # noqa: F811
    (tmp_path / "recipe.toml").write_text(
        'title = "T"\nquestion = "Q?"\nbaseline = "a"\nseeds = [1]\nprofile = "big"\n'
        '[arms.a]\nchange = "none"\n[profiles.big]\nabout = "-"\n[profiles.big.settings]\nmodel = { path = "some/model" }\n'
    )
    code, text = cli("run", tmp_path, "--smoke")
    assert code == 2
    assert "has no profile with model.path = pocket" in text
