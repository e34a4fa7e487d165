import errno
import json

import pytest
import torch
from learn_builders import lora_learner, ragged_rows, row, tiny, train_config, weights_of
from peft import PeftModel

from coterie.config import FullWeightsConfig, LoraConfig
from coterie.learn import checkpoint
from coterie.learn.adapter import attach_adapter
from coterie.learn.learner import Learner
from coterie.types import CoterieError

PROBE = torch.arange(37)[None]


def full_learner(config):
    return Learner(attach_adapter(tiny(), FullWeightsConfig(kind="full"), 0), config)


def rows_of(step):
    """The second step has nothing to learn from, so that counts of steps and of updates differ."""
    return [row([1], [2, 3], 0.0)] * 4 if step == 1 else ragged_rows(seed=step)


MAKERS = {"lora": lora_learner, "dropout": lambda c: lora_learner(c, dropout=0.3), "full": full_learner}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("stop", [0, 1, 2, 3])
def test_stop_and_resume_is_never_stopping_bit_for_bit(tmp_path, make, stop):
    config = train_config(schedule="linear", warmup_steps=2, weight_decay=0.01)
    whole = make(config)
    metrics = [whole.step(rows_of(s)) for s in range(6)]

    first = make(config)
    early = [first.step(rows_of(s)) for s in range(stop)]
    saved = checkpoint.save(tmp_path, stop, first, {"note": [1, 2.5, None]}, keep=2)
    torch.manual_seed(99)
    second = make(config)
    assert checkpoint.load(saved, second) == {"note": [1, 2.5, None]}
    late = [second.step(rows_of(s)) for s in range(stop, 6)]

    assert early + late == metrics
    assert (second.step_index, second.updates) == (whole.step_index, whole.updates) == (6, 5)
    for name, parameter in whole.trainable.items():
        assert torch.equal(parameter, second.trainable[name])
        ours, theirs = second.optimizer.state[second.trainable[name]], whole.optimizer.state[parameter]
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


def test_loading_replaces_what_a_used_learner_had(tmp_path):
    fresh = lora_learner()
    saved = checkpoint.save(tmp_path, 0, fresh, {}, keep=1)
    used = lora_learner(seed=5)
    used.step(ragged_rows())
    checkpoint.load(saved, used)
    fresh.step(ragged_rows(seed=1))
    used.step(ragged_rows(seed=1))
    assert all(torch.equal(p, used.trainable[n]) for n, p in fresh.trainable.items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_adapter_folder_loads_in_peft_and_stays_fp32(tmp_path, dtype):
    learner = lora_learner(dtype=dtype)
    learner.step(ragged_rows())
    learner.step(ragged_rows(seed=1))
    saved = checkpoint.save(tmp_path, 2, learner, {}, keep=1)
    elsewhere = PeftModel.from_pretrained(tiny(dtype=dtype), saved / "adapter").eval()
    assert torch.equal(elsewhere(PROBE).logits, learner.model(PROBE).logits)
    assert {p.dtype for n, p in elsewhere.named_parameters() if "lora_" in n} == {torch.float32}
    resumed = lora_learner(dtype=dtype)
    checkpoint.load(saved, resumed)
    assert {p.dtype for p in resumed.trainable.values()} == {torch.float32}


def test_full_weights_have_no_adapter_folder(tmp_path):
    saved = checkpoint.save(tmp_path, 0, full_learner(train_config()), {}, keep=1)
    assert sorted(p.name for p in saved.iterdir()) == ["state.json", "state.safetensors"]


def test_the_newest_are_kept(tmp_path):
    learner = lora_learner()
    assert checkpoint.latest(tmp_path) is None
    assert checkpoint.latest(tmp_path / "absent") is None
    for step in (1, 2, 9, 10, 1_000_000):
        saved = checkpoint.save(tmp_path, step, learner, {"step": step}, keep=2)
        assert checkpoint.latest(tmp_path) == saved
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-000010", "step-1000000"]


def test_a_step_may_be_written_again(tmp_path):
    learner = lora_learner()
    checkpoint.save(tmp_path, 3, learner, {"take": 1}, keep=1)
    saved = checkpoint.save(tmp_path, 3, learner, {"take": 2}, keep=1)
    assert checkpoint.load(saved, learner) == {"take": 2}
    assert [p.name for p in tmp_path.iterdir()] == ["step-000003"]


class Killed(BaseException):
    pass


def stopped(*_args, **_kwargs):
    raise Killed


@pytest.mark.parametrize(("where", "name"), [("os", "rename"), ("checkpoint", "save_file"), ("checkpoint", "_flush")])
def test_killed_before_the_rename(tmp_path, monkeypatch, where, name):
    """No code of ours runs after a kill; an exception that nothing catches leaves the same files behind."""
    learner = lora_learner()
    kept = checkpoint.save(tmp_path, 1, learner, {"step": 1}, keep=1)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.os if where == "os" else checkpoint, name, stopped)
        with pytest.raises(Killed):
            checkpoint.save(tmp_path, 2, learner, {"step": 2}, keep=1)
    assert len(list(tmp_path.iterdir())) == 2, "the leftover is there"
    assert checkpoint.latest(tmp_path) == kept
    assert checkpoint.load(kept, learner) == {"step": 1}
    saved = checkpoint.save(tmp_path, 2, learner, {"step": 2}, keep=1)
    assert list(tmp_path.iterdir()) == [saved]


def test_killed_while_an_old_one_is_removed(tmp_path, monkeypatch):
    learner = lora_learner()
    checkpoint.save(tmp_path, 1, learner, {}, keep=1)

    def half_removed(path, **_):
        if path.exists():
            (path / "state.safetensors").unlink()

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.shutil, "rmtree", half_removed)
        saved = checkpoint.save(tmp_path, 2, learner, {}, keep=1)
    assert len(list(tmp_path.iterdir())) == 2
    assert checkpoint.latest(tmp_path) == saved
    assert checkpoint._complete(tmp_path) == [saved]


def no_room(*_args, **_kwargs):
    raise OSError(errno.ENOSPC, "No space left on device")


def no_room_in_rust(*_args, **_kwargs):
    raise checkpoint.SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


@pytest.mark.parametrize("name", ["save_file", "_flush"])
@pytest.mark.parametrize("failure", [no_room, no_room_in_rust])
def test_a_full_disk(tmp_path, monkeypatch, name, failure):
    learner = lora_learner()
    kept = checkpoint.save(tmp_path, 1, learner, {"step": 1}, keep=1)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, name, failure)
        with pytest.raises(CoterieError, match=rf"{tmp_path.name}.*no room.*train\.keep_checkpoints"):
            checkpoint.save(tmp_path, 2, learner, {}, keep=1)
    assert list(tmp_path.iterdir()) == [kept]
    assert checkpoint.load(kept, learner) == {"step": 1}


def test_another_failure_of_the_disk_is_itself(tmp_path, monkeypatch):
    def denied(*_args, **_kwargs):
        raise PermissionError(errno.EACCES, "denied")

    monkeypatch.setattr(checkpoint, "save_file", denied)
    with pytest.raises(PermissionError):
        checkpoint.save(tmp_path, 1, lora_learner(), {}, keep=1)


def other_rank():
    return Learner(attach_adapter(tiny(), LoraConfig(rank=8), 0), train_config())


def fewer_targets():
    return Learner(attach_adapter(tiny(), LoraConfig(rank=4, targets=("q_proj",)), 0), train_config())


@pytest.mark.parametrize("make", [other_rank, fewer_targets, lambda: full_learner(train_config())])
def test_a_checkpoint_of_another_model_is_refused_before_anything_changes(tmp_path, make):
    source = lora_learner()
    source.step(ragged_rows())
    saved = checkpoint.save(tmp_path, 1, source, {}, keep=1)
    learner = make()
    before = weights_of(learner)
    with pytest.raises(CoterieError, match=r"lora_.*model\.adapter"):
        checkpoint.load(saved, learner)
    assert all(torch.equal(before[n], p) for n, p in learner.trainable.items())
    assert (learner.step_index, learner.updates) == (0, 0)


def test_a_damaged_checkpoint_is_named(tmp_path):
    learner = lora_learner()
    saved = checkpoint.save(tmp_path, 1, learner, {}, keep=1)
    whole = (saved / "state.safetensors").read_bytes()
    (saved / "state.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CoterieError, match="step-000001: not a readable"):
        checkpoint.load(saved, learner)
    (saved / "state.safetensors").write_bytes(whole)
    state = json.loads((saved / "state.json").read_text())
    (saved / "state.json").write_text(json.dumps(state | {"format": 99}))
    with pytest.raises(CoterieError, match="format 99"):
        checkpoint.load(saved, learner)


def test_extra_must_be_json(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        checkpoint.save(tmp_path, 1, lora_learner(), {"x": float("nan")}, keep=1)
    assert list(tmp_path.iterdir()) == []
