"""Runs with partners: adapters of other runs, frozen copies of the policy, and a server."""

import json
import re

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from coterie import train as training
from coterie.assemble import assemble, write_script
from coterie.engines.base import Request, Sampler
from coterie.engines.hf import HFEngine
from coterie.engines.players import Players
from coterie.learn import checkpoint
from coterie.learn.adapter import attach_adapter
from coterie.learn.learner import Learner
from coterie.loading import load_model
from coterie.partners import keep_snapshots, load_partners
from coterie.pocket import MODEL_DIR
from coterie.records import read_lines
from coterie.results import conditions_of
from coterie.types import BASE, POLICY, CoterieError
from coterie.worker import play_run
from tests.end_to_end.strangers import strangers
from tests.end_to_end.test_resume import Interrupted, outcome, start
from tests.engines.servers import says, serving
from tests.engines.tiny import run, tiny_model


def job_of(plan):
    (job,) = [job for job in plan.jobs if job.seed is not None]
    return job


@pytest.fixture(scope="module")
def partner(tmp_path_factory):
    return strangers(tmp_path_factory.mktemp("partner"), (18,))[0].path


def adapter_of(partner):
    return checkpoint.latest(partner / "checkpoints") / "adapter"


def asked(stage, player, count=6):
    views = [stage.hall.protocol.view(task, "A", (), False) for task in stage.tasks.held_out[:count]]
    return [Request(stage.hall.tokenizer.encode(view), 24, player, Sampler(1.0), [0.37] * 24, view) for view in views]


@pytest.mark.parametrize("kind", ["local", "hf"])
@pytest.mark.parametrize("as_run", [True, False], ids=["run folder", "adapter folder"])
def test_a_partner_speaks_as_peft_itself_loads_it(small_plan, tmp_path, partner, kind, as_run):
    """The oracle is transformers with `PeftModel.from_pretrained` in a model of its own. It also shows that the policy and the base
    beside it are what they are without a partner: breaks when adding one leaves it active."""
    given = partner if as_run else adapter_of(partner)
    stage = assemble(job_of(small_plan(tmp_path, f'evaluate.partners=["{given}"]', f"engine.kind={kind}")).config)
    base = AutoModelForCausalLM.from_pretrained(MODEL_DIR, dtype=torch.float32).eval()
    stop = {"stop_ids": stage.hall.tokenizer.stop_ids, "context_length": stage.engine.context_length}
    plain = run(HFEngine(Players(base), **stop), asked(stage, POLICY))
    theirs = run(HFEngine(Players(PeftModel.from_pretrained(base, str(adapter_of(partner))).eval()), **stop), asked(stage, POLICY))
    assert [c.ids for c in theirs] != [c.ids for c in plain], "the partner says what the base says, so nothing is tested"
    for _ in range(2):
        for player, expected in (("chat-seed18", theirs), (POLICY, plain), (BASE, plain)):  # an untrained policy is the base
            found = run(stage.engine, asked(stage, player))
            assert [c.ids for c in found] == [c.ids for c in expected], player
            for one, other in zip(found, expected, strict=True):
                assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
        stage.engine.refresh(1)


def test_a_partner_is_not_trained_nor_saved_and_a_run_without_gives_the_same_adapter_to_begin_with(small_plan, tmp_path, partner):
    without = assemble(job_of(small_plan(tmp_path / "a")).config)
    options = (f'cast={{kind="mixed_partners", partner="{partner}"}}', "draw.episodes=4", "train.optimizer.lr=0.01")
    folder = start(small_plan(tmp_path / "b", *options, steps=2))
    stage = assemble(folder.config())
    ours = {n: p.detach().clone() for n, p in stage.model.named_parameters() if p.requires_grad}
    assert ours.keys() == {n for n, p in without.model.named_parameters() if p.requires_grad}
    assert all(torch.equal(p, ours[n]) for n, p in without.model.named_parameters() if n in ours)
    frozen = {n: p.detach().clone() for n, p in stage.model.named_parameters() if "chat-seed18" in n}
    assert len(frozen) == len(ours)
    learner = training.train(stage, folder)
    assert learner.trainable.keys() == ours.keys()
    assert stage.model.active_adapters == ["default"]
    parameters = dict(stage.model.named_parameters())
    assert all(torch.equal(parameters[n], p) and not parameters[n].requires_grad for n, p in frozen.items())
    assert any(not torch.equal(parameters[n], p) for n, p in ours.items())
    saved = checkpoint.latest(folder.checkpoints)
    assert not (saved / "players.safetensors").exists()
    assert not any("seed18" in name for name in load_file(saved / "state.safetensors"))
    assert sorted(p.name for p in (saved / "adapter").iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    players = {tuple(e["cast"].values()) for e in read_lines(folder.episodes_file)}
    assert players <= {(POLICY, POLICY), (POLICY, "chat-seed18")}


BRIEF = ("tasks.held_out=2", "evaluate.cross_play=false", "evaluate.episodes=1")
POOL = ('cast={kind="pool", snapshot_every=1, largest=2, partners=["base"], by="result", share=1.0}',)


def test_a_pool_stopped_and_resumed_equals_one_that_never_stopped(small_plan, tmp_path, monkeypatch):
    """Bit for bit, three steps, a snapshot after each. Breaks if the weights of snapshots or the results of members are lost."""
    options = (*POOL, "train.checkpoint_every=1", "train.optimizer.warmup_steps=0", "train.sample_episodes=8", *BRIEF)
    whole = start(small_plan(tmp_path / "whole", *options, steps=3))
    play_run(whole)
    stopped = start(small_plan(tmp_path / "stopped", *options, steps=3))
    append = training.append_lines

    def interrupt(path, records):
        append(path, records)
        if path.name == "metrics.jsonl" and records[0]["step"] == 3:
            raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(training, "append_lines", interrupt)
        with pytest.raises(Interrupted):
            play_run(stopped)
    play_run(stopped)
    assert outcome(stopped) == outcome(whole)
    last = [checkpoint.latest(folder.checkpoints) for folder in (whole, stopped)]
    assert last[0].joinpath("state.json").read_text() == last[1].joinpath("state.json").read_text()
    assert last[0].joinpath("players.safetensors").read_bytes() == last[1].joinpath("players.safetensors").read_bytes()
    members = {player for e in read_lines(whole.episodes_file) for player in e["cast"].values()}
    assert {"step-1", "step-2"} & members, "no snapshot played, so nothing was tested"
    assert any(metrics["live_rows"] for metrics in read_lines(whole.metrics_file)), "no step learned anything"


def test_a_snapshot_is_the_policy_as_it_was(small_plan, tmp_path):
    """What the checkpoint of step 3 keeps as step-2 is what the checkpoint of step 2 has as the policy."""
    options = (*POOL, "train.checkpoint_every=1", "train.keep_checkpoints=3", "train.optimizer.warmup_steps=0", *BRIEF)
    folder = start(small_plan(tmp_path, *options, steps=3))
    play_run(folder)
    for step in (2, 3):
        frozen = checkpoint.load_frozen(folder.checkpoints / "step-000003")
        policy = load_file(folder.checkpoints / f"step-{step:06d}" / "state.safetensors")
        policy = {name.removeprefix("param."): t for name, t in policy.items() if name.startswith("param.")}
        assert frozen.keys() == {"step-2", "step-3"}
        assert frozen[f"step-{step}"].keys() == policy.keys()
        assert all(torch.equal(frozen[f"step-{step}"][name], tensor) for name, tensor in policy.items())
    assert not torch.equal(*(frozen[s][next(n for n in policy if "lora_B" in n)] for s in ("step-2", "step-3")))


def test_a_run_with_a_server_for_a_partner(small_plan, tmp_path):
    """It plays B in half of the episodes and in cross-play. The policy learns from its own messages only."""
    with serving(lambda body: says("I know: 4. The answer is 7.")) as (url, seen):
        options = (f'cast={{kind="mixed_partners", partner="{url}#org/ana"}}', f'evaluate.partners=["base", "{url}#org/ana"]')
        folder = start(small_plan(tmp_path, *options, steps=1))
        play_run(folder)
    result = json.loads(folder.result_file.read_text())
    name = re.sub(r"\W", "-", url.removeprefix("http://").removesuffix("/v1"))
    assert list(result["cross_play"]) == [
        "A=policy,B=base", "A=base,B=policy", f"A=policy,B=ana-at-{name}", f"A=ana-at-{name},B=policy"
    ]  # fmt: skip
    (metrics,) = read_lines(folder.metrics_file)
    assert metrics["episodes"] == 8
    assert metrics["rows"] == 4 * 4 + 4 * 2  # four episodes of the policy alone, four in which it says every second message
    assert len(seen) == 4 * 2 + 2 * 4 * result["episodes"] // result["held_out"] * 2
    assert seen[0]["model"] == "org/ana"


def test_the_price_of_a_step_is_in_its_metrics_and_in_the_result(small_plan, tmp_path):
    draw = 'draw={kind="reinforce_ada", per_round=4, rounds=3, exit="spread"}'
    folder = start(small_plan(tmp_path, draw, "evaluate.cross_play=false", steps=2))
    play_run(folder)
    metrics = read_lines(folder.metrics_file)
    for step in metrics:
        assert step["episodes"] in {8, 12, 16, 20, 24}
        assert 1 <= step["rounds"] <= 3
        assert step["kept_episodes"] == 4 * step["tasks"] == 8
        assert step["rows"] == 8 * 4
    cost = json.loads(folder.result_file.read_text())["cost"]
    assert cost == {
        key: sum(step[key] for step in metrics) for key in ("tasks", "episodes", "kept_episodes", "rounds", "sampled_tokens")
    }


def test_a_step_in_which_every_task_is_dropped_moves_nothing_and_goes_on(small_plan, tmp_path):
    """The answers are cut short and all wrong: dynamic sampling asks for fresh tasks until there are none, and keeps none."""
    options = ('draw={kind="dynamic", episodes=2, rounds=3}', "protocol.message_tokens=1", "protocol.final_tokens=1")
    folder = start(small_plan(tmp_path, *options, "evaluate.cross_play=false", "tasks.train=5", steps=1))
    play_run(folder)
    (metrics,) = read_lines(folder.metrics_file)
    assert (metrics["tasks"], metrics["episodes"], metrics["kept_episodes"], metrics["skipped"]) == (5, 10, 0, True)


def test_other_protocols_score_the_same_model_on_the_same_problems(small_plan, tmp_path):
    """Before training too. The chat deals the facts to two seats; a single copy is given all of them."""
    split = '{kind="board", facts="split", copies=2, message_tokens=16, final_tokens=32}'
    also = f'evaluate.also={{plain={{kind="solo", final_tokens=32}}, split={split}}}'
    plan = small_plan(tmp_path, also, "evaluate.cross_play=false", "protocol.message_tokens=16", steps=1)
    stage = assemble(job_of(plan).config)
    assert [t.question for t in stage.also["plain"].held_out] == [t.question for t in stage.tasks.held_out]
    assert stage.also["split"].held_out == stage.tasks.held_out
    for job in plan.jobs:
        job.folder.create(job.config)
        play_run(job.folder)
        record = json.loads(job.folder.result_file.read_text())
        assert record["also"].keys() == {"plain", "split"}
        assert record["also"]["plain"]["held_out"] == 4
        assert 0 <= record["also"]["plain"]["score"] <= 1


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (('cast={kind="mixed_partners", partner="/nowhere"}',), "partner /nowhere: neither a run folder"),
        (('cast={kind="mixed_partners", seats=["C"]}',), "there is no seat C"),
        (('cast={kind="mixed_partners", partner="{partner}"}', 'model.adapter={kind="full"}'), "belongs to the untouched base"),
        (('cast={kind="pool", snapshot_every=1}', 'model.adapter={kind="full"}'), "has no adapter to be copied"),
        (('evaluate.partners=["{partner}", "/x/chat-seed18"]',), "would both be called chat-seed18"),
        (
            ('evaluate.also={three={kind="chat", order=["A","B","C"]}}',),
            "evaluate.also.three: it can play none of the held-out tasks",
        ),
        (('evaluate.partners=["http://127.0.0.1:1/v1"]',), "name the model after a #"),
        (('evaluate.partners=["http://127.0.0.1:1/v1#m"]', "evaluate.sampling.top_k=5"), "have no such setting"),
    ],
)
def test_what_cannot_be_is_refused_before_any_weights_are_read(small_plan, tmp_path, partner, sets, said):
    sets = [one.replace("{partner}", str(partner)) for one in sets]
    with pytest.raises(CoterieError, match=re.escape(said)):
        write_script(job_of(small_plan(tmp_path, *sets)).config)


def test_a_run_of_another_model_or_unfinished_and_an_adapter_of_another_shape_are_refused(small_plan, tmp_path, partner):
    folder = tmp_path / "other-run"
    folder.mkdir()
    text = (partner / "config.toml").read_text()
    (folder / "config.toml").write_text(text.replace('path = "pocket"', 'path = "org/large"'))
    config = job_of(small_plan(tmp_path / "a", f'evaluate.partners=["{folder}"]')).config
    with pytest.raises(CoterieError, match="that run is of model org/large, this one of pocket"):
        write_script(config)

    (folder / "config.toml").write_text(text)  # its weights would be others when this run is resumed
    (folder / "checkpoints").symlink_to(partner / "checkpoints")
    with pytest.raises(CoterieError, match="that run has not finished"):
        write_script(config)

    model = attach_adapter(tiny_model("llama"), config.model.adapter, 0)
    with pytest.raises(CoterieError, match=r"this adapter (does not fit the model|is of a model of another shape)"):
        load_partners(model, {"chat-seed18": adapter_of(partner)})


def test_a_learner_made_after_partners_has_the_policys_parameters_only(small_plan, tmp_path, partner):
    """Without an engine between them, which would switch adapters and so mend it by chance."""
    config = job_of(small_plan(tmp_path)).config
    model = attach_adapter(load_model(config.model), config.model.adapter, 0)
    alone = Learner(model, config.train).trainable.keys()
    load_partners(model, {"chat-seed18": adapter_of(partner)})
    keep_snapshots(model, ["step-1"], [])
    learner = Learner(model, config.train)
    assert learner.trainable.keys() == alone
    assert not any("chat-seed18" in name or "step-1" in name for name in alone)
    assert (list(model.peft_config), model.active_adapters) == (["default", "chat-seed18", "step-1"], ["default"])
    keep_snapshots(model, [], ["step-1"])
    assert (list(model.peft_config), model.active_adapters) == (["default", "chat-seed18"], ["default"])
    assert Learner(model, config.train).trainable.keys() == alone


def test_a_snapshot_that_has_left_gives_its_memory_back_and_plays_no_more(small_plan, tmp_path):
    stage = assemble(job_of(small_plan(tmp_path)).config)
    keep_snapshots(stage.model, ["step-1"], [])
    run(stage.engine, asked(stage, "step-1", 1))
    keep_snapshots(stage.model, [], ["step-1"])
    stage.engine.refresh(1)
    assert "step-1" not in stage.engine._lanes
    with pytest.raises(CoterieError, match="no player is named step-1"):
        stage.engine.submit(asked(stage, "step-1", 1)[0])


def test_partners_are_compared_by_name_and_kept_by_absolute_path(small_plan, tmp_path, partner, monkeypatch):
    """So a run can be gone on with from another folder, and records of two machines be compared."""
    monkeypatch.chdir(partner.parent)
    sets = ('cast={kind="mixed_partners", partner="chat-seed18"}', 'evaluate.partners=["base", "./chat-seed18", "http://h:1/v1#m"]')
    config = job_of(small_plan(tmp_path, *sets)).config
    assert config.cast.partner == str(partner)
    assert config.evaluate.partners == ("base", str(partner), "http://h:1/v1#m")
    conditions = config.conditions()
    assert conditions["cast"]["partner"] == "chat-seed18"
    assert conditions["evaluate"]["partners"] == ["base", "chat-seed18", "m-at-h-1"]
    who = {key: getattr(config, key) for key in ("recipe", "profile", "arm", "seed")}
    assert conditions_of({**who, "conditions": conditions}) == conditions  # as they are read again from a record
