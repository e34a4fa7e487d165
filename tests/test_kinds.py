"""Kinds from outside the package: plugins and entry points."""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from coterie import kinds
from coterie.kinds import load_entry_points, load_plugins, run_config
from coterie.recipe import load_recipe, parse_overrides, resolve
from coterie.types import CoterieError
from tests.commands import cli, fresh_kinds  # noqa: F401 (fixtures)

EXAMPLE = Path(__file__).parents[1] / "docs" / "examples" / "coordinator"
pytestmark = pytest.mark.usefixtures("fresh_kinds")

ECHO = """
from typing import Literal
from coterie.kinds import Config, register

class EchoConfig(Config):
    kind: Literal["echo"]
    final_tokens: int = 7
    \"\"\"Cap of the echo.\"\"\"

register("protocol", EchoConfig, lambda config, about: None)
"""


@pytest.fixture
def plugin(tmp_path):
    def write(text: str = ECHO, name: str = "echo.py") -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def config(recipe: str = "talk-to-solve", *sets: str, plugins=(), arm: str = "chat"):
    return resolve(load_recipe(recipe, plugins), profile="pocket", arm=arm, seed=17, overrides=parse_overrides(sets))


def test_a_protocol_of_eighty_lines_trains_and_scores_in_workers(cli, tmp_path):  # noqa: F811
    """The whole way, through the worker process that has only the run folder to go by."""
    assert len((EXAMPLE / "coordinator.py").read_text().splitlines()) <= 80
    mine = shutil.copytree(EXAMPLE, tmp_path / "mine", ignore=shutil.ignore_patterns("__pycache__"))
    small = ("--set", "tasks.held_out=4", "--set", "train.tasks_per_step=2", "--set", "evaluate.before=false")
    words = ("run", mine, "--arm", "told", "--seeds", "17", "--steps", "2", "--out", tmp_path / "out", *small)
    code, text = cli(*words)
    assert code == 0, text
    run = tmp_path / "out" / "told-seed17"
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [step["rows"] for step in metrics] == [2 * 4 * 3] * 2, "two tasks, four episodes, three messages"
    assert sum(step["live_rows"] for step in metrics) > 0
    episode = json.loads((run / "episodes.jsonl").read_text().splitlines()[0])
    assert [m["seat"] for m in episode["messages"]] == ["A", "B", "coordinator"]
    assert all("advantage" in m for m in episode["messages"])
    assert set(episode["scores"]) == {"coordinator"}
    record = json.loads((run / "result.json").read_text())
    assert record["held_out"] == 4
    assert 0 <= record["score"] <= 1
    written = tomllib.loads((run / "config.toml").read_text())
    assert [Path(one["path"]) for one in written["plugins"]] == [mine / "coordinator.py"]

    (run / "result.json").unlink()
    (mine / "coordinator.py").write_text((mine / "coordinator.py").read_text().replace("Answer:", "Write:"))
    code, text = cli(*words, "--resume")
    assert code == 2
    assert "coordinator.py has changed since the run began; put the old file back, or begin a new run" in text


def test_a_built_in_recipe_with_another_protocol_keeps_what_both_have(plugin, tmp_path, monkeypatch):
    """`message_tokens` is the chat's alone and goes; the cap of the profile stays; what the arms differ in is gone, so only a
    single arm may be played."""
    from coterie.experiment import plan

    monkeypatch.chdir(tmp_path)  # a checkout in which somebody has run the recipe holds runs of its arms
    recipe = load_recipe("talk-to-solve", [plugin()])
    of = resolve(recipe, profile="pocket", arm="chat", seed=17, overrides=parse_overrides(["protocol.kind=echo"]))
    assert of.protocol.model_dump() == {"kind": "echo", "final_tokens": 64}
    with pytest.raises(CoterieError, match=r"\(protocol.deliver of chat\); play a single arm with --arm, or copy the recipe"):
        plan(recipe, sets=["protocol.kind=echo"])
    assert len(plan(recipe, sets=["protocol.kind=echo"], arms=["chat"]).jobs) == 6


def test_a_single_arm_is_no_way_around_the_comparison(plugin, tmp_path):
    """Runs of the other arm lie in the folder already, and what the arms differ in would be gone."""
    from coterie.experiment import plan

    recipe = load_recipe("talk-to-solve", [plugin()])
    (tmp_path / "out" / "off-seed17").mkdir(parents=True)
    (tmp_path / "out" / "off-seed17" / "config.toml").touch()
    with pytest.raises(CoterieError, match=r"changes what the arms of talk-to-solve differ in"):
        plan(recipe, sets=["protocol.kind=echo"], arms=["chat"], out=tmp_path / "out")


def test_misspelt_settings_of_a_plugin_get_the_usual_sentence(plugin):
    with pytest.raises(CoterieError, match=r"final_tokenz is not a setting of protocol.kind = echo; did you mean .*final_tokens"):
        config("talk-to-solve", "protocol.kind=echo", "protocol.final_tokenz=3", plugins=[plugin()])
    with pytest.raises(CoterieError, match=r"protocol.kind: ecko is not one of .*'debate', 'echo'"):
        config("talk-to-solve", "protocol.kind=ecko", plugins=[plugin()])


def test_a_protocol_of_a_plugin_can_be_scored_with_too(plugin):
    """`evaluate.also` names protocols. Breaks when only the table `protocol` learns of new kinds."""
    of = config("talk-to-solve", "evaluate.also.echo={kind = 'echo', final_tokens = 3}", plugins=[plugin()])
    assert of.evaluate.also["echo"].final_tokens == 3
    assert run_config().model_validate(of.model_dump()) == of


def test_settings_lists_the_kind(cli, plugin):  # noqa: F811
    code, text = cli("settings", "protocol[echo]", "--plugin", plugin())
    assert (code, text) == (0, "protocol[echo].kind = echo protocol[echo].final_tokens = 7 Cap of the echo.")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nothing_of_this_name", "line 1: ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("x = 1\n\ndef f(:\n", "line 3: SyntaxError: invalid syntax"),
        ("def f():\n    raise ValueError('no\\ngood')\n\nf()\n", "line 2: ValueError: no good"),
        (ECHO.replace('"echo"', '"chat"'), 'line 10: register: protocol.kind = "chat" is taken; give the kind another name'),
        (ECHO.replace('"protocol"', '"protocols"'), "line 10: register: protocols is not a table; there are tasks, grading, "),
        (ECHO.replace('Literal["echo"]', "str"), 'line 10: register: EchoConfig needs a field kind: Literal["its name"]'),
    ],
)
def test_what_is_wrong_with_a_plugin_names_file_and_line(cli, plugin, text, message):  # noqa: F811
    code, said = cli("explain", "talk-to-solve", "--plugin", plugin(text))
    assert code == 2
    assert f"echo.py, {message}" in said
    assert "Traceback" not in said


def test_a_plugin_must_be_there_and_be_python(tmp_path):
    with pytest.raises(CoterieError, match=r"nowhere.py: there is no such file"):
        load_plugins([tmp_path / "nowhere.py"])
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(CoterieError, match=r"notes.txt: not a Python file; its name must end in .py"):
        load_plugins([tmp_path / "notes.txt"])


def test_two_plugins_may_not_take_one_name(plugin):
    load_plugins([plugin()])
    with pytest.raises(CoterieError, match=r'other.py, line 10: register: protocol.kind = "echo" is taken'):
        load_plugins([plugin(name="other.py")])


def test_a_new_text_of_a_plugin_replaces_the_old_one_and_leaves_nothing_behind(plugin):
    first = load_plugins([plugin()])
    assert load_plugins(first) == first
    second = load_plugins([plugin(ECHO.replace('"echo"', '"echo2"'))])
    assert first != second
    assert config("talk-to-solve", "protocol.kind=echo2").protocol.kind == "echo2"
    with pytest.raises(CoterieError, match=r"protocol.kind: echo is not one of"):
        config("talk-to-solve", "protocol.kind=echo")
    with pytest.raises(CoterieError, match="has changed since the run began"):
        load_plugins(first)


def test_a_plugin_that_fails_registers_nothing(plugin):
    with pytest.raises(CoterieError, match="ZeroDivisionError"):
        load_plugins([plugin(ECHO + "1 / 0\n")])
    assert ("protocol", "echo") not in kinds._kinds
    load_plugins([plugin()])


def test_the_paths_of_a_recipe_are_counted_from_it(plugin, tmp_path, monkeypatch):
    """Plugins, tasks, and a partner's folder; a name that is no file beside the recipe stays a name."""
    plugin()
    (tmp_path / "partner").mkdir()
    text = (EXAMPLE / "recipe.toml").read_text().replace('"coordinator.py"', '"echo.py"').replace('"coordinator"', '"echo"')
    text = text.replace("deliver = false", "final_tokens = 8").replace("deliver = true", "")
    text = text.replace(
        'tasks = { kind = "pocket", train = 4096, held_out = 400 }', 'tasks = { kind = "jsonl", path = "mine.jsonl" }'
    )
    cast = '[settings]\ncast = { kind = "pool", partners = ["base", "partner", "absent/partner"] }'
    (tmp_path / "recipe.toml").write_text(text.replace("[settings]", cast, 1))
    monkeypatch.chdir("/")
    of = config(str(tmp_path), arm="told")
    assert of.tasks.path == str(tmp_path / "mine.jsonl")
    assert of.cast.partners == ("base", str(tmp_path / "partner"), "absent/partner")
    assert of.plugins[0].path == str(tmp_path / "echo.py")
    assert of.model.path == "pocket"


def test_entry_points(cli, monkeypatch, plugin, tmp_path):  # noqa: F811
    """An installed package's kinds are there without being named. Breaks when coterie's own kinds come after them."""
    plugin(name="echo_package.py")
    monkeypatch.syspath_prepend(tmp_path)

    def points(group):
        return [importlib.metadata.EntryPoint("echo", name, group) for name in wanted]

    monkeypatch.setattr(importlib.metadata, "entry_points", points)
    wanted = ["echo_package"]
    load_entry_points()
    load_entry_points()
    assert config("talk-to-solve", "protocol.kind=echo").protocol.final_tokens == 64
    assert cli("settings", "protocol[echo].kind") == (0, "protocol[echo].kind = echo")
    wanted = ["no_such_package"]
    assert cli("recipes")[0] == 2
    with pytest.raises(CoterieError, match=r"entry point echo of coterie.kinds failed to load: ModuleNotFoundError"):
        load_entry_points()


def test_a_worker_knows_the_kinds_of_installed_packages(plugin, tmp_path):
    """A package as pip leaves it, on the path of a worker process. Breaks when only the command line looks for entry points."""
    plugin(ECHO + "import pathlib\npathlib.Path(__file__).with_name('loaded').touch()\n", "echo_package.py")
    about = tmp_path / "echo_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: echo-package\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[coterie.kinds]\necho = echo_package\n")
    paths = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    worker = [sys.executable, "-P", "-m", "coterie.worker"]
    subprocess.run(worker, input="", text=True, env={**os.environ, "PYTHONPATH": paths}, check=True)
    assert (tmp_path / "loaded").exists()
