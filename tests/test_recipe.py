"""Layers of settings, and sentences for what is wrong with them."""

import tomllib

import pytest

from coterie.config import RunConfig
from coterie.recipe import choose_profile, load_recipe, merge, parse_overrides, recipe_names, recipes_folder, resolve
from coterie.types import CoterieError

TALK = load_recipe("talk-to-solve")


def config(*sets, profile="pocket", arm="chat"):
    return resolve(TALK, profile=profile, arm=arm, seed=17, overrides=parse_overrides(sets))


@pytest.mark.parametrize("name", recipe_names())
def test_every_profile_and_arm_of_every_recipe_parses(name):
    recipe = load_recipe(name)
    for profile in recipe.file.profiles:
        for arm in recipe.file.arms:
            assert resolve(recipe, profile=profile, arm=arm, seed=17, overrides={}).arm == arm


def test_arms_of_talk_to_solve_differ_in_delivery_only():
    off, chat = config(arm="off").model_dump(), config(arm="chat").model_dump()
    assert off["protocol"].pop("deliver") is False
    assert chat["protocol"].pop("deliver") is True
    assert {**off, "arm": ""} == {**chat, "arm": ""}


def test_how_often_the_untrained_model_is_scored_is_no_condition_of_a_run():
    assert config("evaluate.repeats=5").conditions() == config().conditions()
    assert config("evaluate.episodes=7").conditions() != config().conditions()


def test_the_published_profile_has_the_published_settings():
    """reference: section 1.3 and 5 of the published experiment."""
    c = config(profile="qwen-1.5b")
    assert (c.model.adapter.rank, c.model.adapter.alpha, c.model.adapter.dropout) == (32, 64, 0)
    assert (c.train.steps, c.train.tasks_per_step, c.draw.episodes) == (80, 8, 4)
    assert (c.train.optimizer.lr, c.train.optimizer.schedule, c.train.optimizer.warmup_steps) == (1e-4, "linear", 0)
    assert (c.train.optimizer.weight_decay, c.train.optimizer.max_grad_norm) == (0, 1.0)
    assert (c.sampling.temperature, c.evaluation_sampling.temperature) == (0.9, 0.9)
    assert (c.protocol.message_tokens, c.protocol.final_tokens, c.protocol.order) == (160, 384, ("A", "B", "A", "B"))
    assert (c.tasks.train, c.tasks.held_out, c.evaluate.episodes) == (1024, 300, 2)


def test_later_layers_win_and_another_kind_replaces():
    assert merge({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}}) == {"a": {"x": 1, "y": 3}}
    assert merge({"t": {"kind": "p", "families": 1}}, {"t": {"kind": "q"}}) == {"t": {"kind": "q"}}
    assert merge({"t": {"kind": "p", "families": 1}}, {"t": {"kind": "p", "n": 2}}) == {"t": {"kind": "p", "families": 1, "n": 2}}
    assert config("train.steps=3").train.steps == 3
    assert config("tasks.kind=gsm8k", "tasks.held_out=5").tasks.held_out == 5


def test_values_are_read_as_toml_or_else_as_text():
    assert parse_overrides(["a.b=1", "a.c=[1, 2]", "a.d=true", "e=some/path", 'f="1"']) == {
        "a": {"b": 1, "c": [1, 2], "d": True},
        "e": "some/path",
        "f": "1",
    }


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["train.stepz=3"], "the command line: train.stepz is not a setting; did you mean train.steps"),
        (["trian.steps=3"], "the command line: trian is not a setting; did you mean train"),
        (["train.optimizer.lrr=3"], "did you mean train.optimizer.lr"),
        (["model.adapter.rankk=3"], "did you mean model.adapter.rank"),
        (["tasks.held=3"], "did you mean tasks.held_out"),
        (["train.optimizer.learning_rate=3"], "is not a setting; `coterie settings train.optimizer` lists them"),
        (["protocol.copies=3"], "is not a setting of protocol.kind = chat; `coterie settings protocol` lists them"),
        (["model.adapter.ranks=3"], "is not a setting of model.adapter.kind = lora; did you mean model.adapter.rank?"),
        (["steps=3"], "steps is not a setting; `coterie settings` lists them"),
        (["protocol=chat"], "protocol holds several settings and is none itself; `coterie settings protocol` lists them"),
        (["cast.kind=pool", "cast.seats=Z"], "cast.seats: give a list, for example cast.seats=[\"Z\"], not 'Z'"),
        (["engine.kind=vlm"], "engine.kind: give 'local', 'hf' or 'vllm', not 'vlm'"),
        (["evaluate.before=maybe"], "evaluate.before: give true or false, not 'maybe'"),
        (["draw.episodes=1"], "draw.episodes = 1 leaves credit.kind = team_mean nothing to compare with; give 2 or more"),
        (["tasks.kind=jsonl"], "tasks.path is missing; `coterie settings tasks` says what it is"),
        (["tasks.kind=gsm9k"], "tasks.kind: gsm9k is not one of 'pocket', 'gsm8k', 'math', 'jsonl'"),
        (["train.steps=many"], "train.steps: give a whole number, not 'many'"),
        (["train.steps=-1"], "train.steps: give 0 or more, not -1"),
        (["sampling.top_p=0.9"], "top_p is refused in training because it biases the gradient"),
        (["sampling.top_k=20"], "top_k is refused in training"),
        (["sampling.repetition_penalty=1.1"], "repetition_penalty is refused in training"),
        (["sampling.temperature=0"], "sampling.temperature: give more than 0"),
        (["train.steps"], "--set train.steps: write it as key=value"),
        (["train=3", "train.steps=4"], "train is given both as a value and as a table"),
        (["protocol.deliver=true"], "protocol.deliver is what the arms of talk-to-solve differ in"),
        (["train.loss.normaliser=constant"], "constant_length belongs to normaliser"),
        (["protocol.order=['A', 'A']"], "needs at least two different seats"),
    ],
)
def test_mistakes_are_one_sentence(sets, message):
    with pytest.raises(CoterieError) as caught:
        config(*sets)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_neutral_sampler_settings_are_no_mistake():
    assert config("sampling.top_p=1.0", "sampling.top_k=0").sampling.temperature == 1.0


def test_a_mistake_in_a_file_names_the_file_and_the_table(tmp_path):
    text = (recipes_folder() / "talk-to-solve" / "recipe.toml").read_text()
    path = tmp_path / "mine.toml"
    path.write_text(text.replace("tasks_per_step = 8\ncheckpoint_every = 1", "taskz_per_step = 8\ncheckpoint_every = 1", 1))
    with pytest.raises(
        CoterieError,
        match=r"mine\.toml \[profiles\.pocket\.settings\]: train\.taskz_per_step is not a setting; "
        r"did you mean train\.tasks_per_step",
    ):
        resolve(load_recipe(str(path)), profile="pocket", arm="chat", seed=1, overrides={})
    path.write_text(text.replace("baseline =", "baselin ="))
    with pytest.raises(CoterieError, match=r"mine\.toml: baselin(e is missing| is not a setting; did you mean baseline)"):
        load_recipe(str(path))
    path.write_text("title = ")
    with pytest.raises(CoterieError, match=r"mine\.toml: not valid TOML"):
        load_recipe(str(path))
    path.write_text(text.replace('baseline = "off"', 'baseline = "of"'))
    with pytest.raises(CoterieError, match="baseline = of is not an arm; did you mean off"):
        load_recipe(str(path))


def test_profiles_for_other_models():
    assert choose_profile(TALK, None, None, cuda=False) == "pocket"
    assert choose_profile(TALK, None, "pocket", cuda=True) == "pocket"
    assert choose_profile(TALK, None, "some/model", cuda=False) == "laptop"
    assert choose_profile(TALK, None, "some/model", cuda=True) == "qwen-1.5b"
    assert choose_profile(TALK, "pocket", "some/model", cuda=False) == "pocket"
    with pytest.raises(CoterieError, match=r"no profile pokcet; it has .*; did you mean pocket"):
        choose_profile(TALK, "pokcet", None, cuda=False)


def test_a_resolved_config_survives_its_file():
    import tomli_w

    c = config()
    text = tomli_w.dumps(c.model_dump(mode="json", exclude_none=True))
    assert RunConfig.model_validate(tomllib.loads(text)) == c


def test_every_setting_is_listed_and_can_be_set():
    from coterie.report.settings import settings

    listed = {key: default for key, default, _ in settings()}
    assert listed["train.optimizer.lr"] == "0.0001"
    assert listed["model.adapter[lora].rank"] == "32"
    assert listed["tasks[gsm8k].kind"] == "gsm8k"
    assert listed["train.gradient_checkpointing"] == "false"
    keys = [key for key in listed if key.startswith("credit[raft]")]
    assert keys[0] == "credit[raft].kind"
    for key, default in listed.items():
        if key.startswith(("train.", "evaluate.", "model.path", "protocol.message")) and default not in ("(none)", "(needed)"):
            config(f"{key}={default}")


def test_naming_the_kind_that_is_there_already_keeps_its_settings():
    assert merge({"draw": {"episodes": 8}}, {"draw": {"kind": "fixed"}})["draw"] == {"episodes": 8, "kind": "fixed"}
    assert merge({"engine": {"slots": 16}}, {"engine": {"kind": "hf"}})["engine"] == {"slots": 16, "kind": "hf"}
    assert merge({"tasks": {"families": ["add2"]}}, {"tasks": {"kind": "pocket"}})["tasks"] == {
        "families": ["add2"],
        "kind": "pocket",
    }
    assert merge({"tasks": {"families": ["add2"]}}, {"tasks": {"kind": "gsm8k"}})["tasks"] == {"kind": "gsm8k"}
    assert merge({"model": {"adapter": {"rank": 8}}}, {"model": {"adapter": {"kind": "full"}}})["model"]["adapter"] == {
        "kind": "full"
    }


def test_replacing_a_table_may_not_wipe_out_what_the_arms_differ_in(tmp_path):
    from coterie.experiment import plan

    text = (recipes_folder() / "talk-to-solve" / "recipe.toml").read_text()
    path = tmp_path / "mine.toml"
    path.write_text(
        text.replace("[arms.off.settings.protocol]\ndeliver = false", "[arms.off.settings.grading]\nboxed_only = true").replace(
            "[arms.chat.settings.protocol]\ndeliver = true", ""
        )
    )
    plan(load_recipe(str(path)))
    with pytest.raises(CoterieError, match=r"changes what the arms of mine differ in \(grading.boxed_only of chat\)"):
        plan(load_recipe(str(path)), sets=["grading.kind=math_verify", "grading.boxed_only=true"][:1])


def test_another_protocol_keeps_what_it_shares_with_the_old_one():
    """The caps of a profile belong to its model: an arm with another protocol plays under them too. Breaks when the arm falls back
    to its kind's default of 512 tokens beside a baseline with 64, which would be two changes in one."""
    old = {"protocol": {"kind": "chat", "final_tokens": 64, "message_tokens": 48, "wording": "plain", "order": ["A", "B"]}}
    assert merge(old, {"protocol": {"kind": "team"}}) == {"protocol": {"kind": "team", "final_tokens": 64, "wording": "plain"}}
    assert merge(old, {"protocol": {"kind": "team", "final_tokens": 9}})["protocol"]["final_tokens"] == 9
    assert merge({"protocol": {"final_tokens": 64}}, {"protocol": {"kind": "solo"}})["protocol"] == {
        "kind": "solo",
        "final_tokens": 64,
    }
    assert merge({"draw": {"episodes": 8}}, {"draw": {"kind": "dynamic"}})["draw"] == {"kind": "dynamic"}


def test_paths_in_a_recipe_file_are_counted_from_its_folder_and_those_of_the_command_line_are_not(tmp_path, monkeypatch):
    text = (recipes_folder() / "talk-to-solve" / "recipe.toml").read_text()
    (tmp_path / "recipes").mkdir()
    path = tmp_path / "recipes" / "mine.toml"
    path.write_text(
        text.replace('tasks = { kind = "pocket", train = 4096, held_out = 400 }', 'tasks = { kind = "jsonl", path = "a.jsonl" }')
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b.jsonl").touch()

    def tasks(*sets):
        return resolve(
            load_recipe("recipes/mine.toml"), profile="pocket", arm="chat", seed=1, overrides=parse_overrides(sets)
        ).tasks

    assert tasks().path == str(tmp_path / "recipes" / "a.jsonl")
    assert tasks("tasks.path=b.jsonl").path == str(tmp_path / "b.jsonl")
    assert resolve(load_recipe("recipes/mine.toml"), profile="qwen-1.5b", arm="chat", seed=1, overrides={}).model.path == (
        "Qwen/Qwen2.5-1.5B-Instruct"
    )
