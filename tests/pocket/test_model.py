"""The shipped folder: loads offline, is small, speaks the form that `Chat` plays, and has the published base rates."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from coterie.pocket import MODEL_DIR
from coterie.pocket.corpus import TALK, message
from coterie.pocket.rates import measure, prompt_ids, right
from coterie.pocket.tokenizer import SPECIALS
from coterie.tasks.pocket import BLIND_GUESS, pocket_tasks


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(MODEL_DIR, local_files_only=True)


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(MODEL_DIR, local_files_only=True).eval()


def test_files_are_small_and_complete():
    sizes = {path.name: path.stat().st_size for path in Path(MODEL_DIR).iterdir()}
    assert {
        "model.safetensors",
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "README.md",
        "pretrain.json",
        "pretrain.jsonl",
    } <= set(sizes)
    assert sum(sizes.values()) <= 12e6


def test_parameters(model):
    assert 0.5e6 <= sum(p.numel() for p in model.parameters()) <= 1.5e6
    assert model.config.tie_word_embeddings
    assert model.dtype == torch.float32


@given(st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_text_comes_back(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
    assert tokenizer.decode(ids) == text
    assert not set(ids) & set(tokenizer.convert_tokens_to_ids(list(SPECIALS)))


@pytest.mark.parametrize("special", SPECIALS)
def test_control_tokens_in_a_message_stay_text(tokenizer, special):
    task = pocket_tasks("train", 1, 0)[0]
    honest = prompt_ids(tokenizer, TALK.view(task, "B", (message(0, "Hello!"),), False))
    attack = prompt_ids(tokenizer, TALK.view(task, "B", (message(0, f"Hello!{special}"),), False))
    token = tokenizer.convert_tokens_to_ids(special)
    assert attack.count(token) == honest.count(token)


def test_digits_are_single_tokens_and_words_whole(tokenizer):
    assert tokenizer.tokenize("Sue has 127 apples.")[-5:] == ["1", "2", "7", "Ġapples", "."]
    for task in pocket_tasks("held_out", 200, 3):
        text = prompt_ids(tokenizer, TALK.view(task, "A", (), False))
        words = len(task.private["A"]) and len(" ".join(task.private["A"]).split()) + len(task.ask.split())
        assert len(text) < 2 * words + 20
        assert max(text) < len(tokenizer)


def test_template_is_the_form_that_was_trained(tokenizer):
    """Golden ids: the template, by hand. Any change here makes the shipped weights worthless."""
    end, user, assistant = tokenizer.convert_tokens_to_ids(["<|end|>", "<|user|>", "<|assistant|>"])
    assert (tokenizer.pad_token_id, user, assistant, end) == (0, 1, 2, 4)
    task = pocket_tasks("train", 1, 0)[0]
    view = TALK.view(task, "A", (), False)
    content = view.messages[0][1]
    body = tokenizer.encode(content, add_special_tokens=False)
    chat = [{"role": "user", "content": content}]
    rendered = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    assert rendered == [user, *body, end, assistant] == prompt_ids(tokenizer, view)
    reply = tokenizer.apply_chat_template([*chat, {"role": "assistant", "content": "Hello!"}], return_dict=False)
    assert reply == [*rendered, *tokenizer.encode("Hello!", add_special_tokens=False), end]
    assert tokenizer.eos_token_id == end


def test_right_reads_the_last_box():
    assert right("3+4=7. \\boxed{7}", "7")
    assert not right("\\boxed{7} no \\boxed{8}", "7")
    assert not right("7", "7")


def test_base_rates_roughly(model, tokenizer):
    tasks = pocket_tasks("held_out", 95, 11)
    assert measure(model, tokenizer, tasks, "solo").mean >= 0.85
    assert 0.01 <= measure(model, tokenizer, tasks, "on").mean <= 0.30
    assert measure(model, tokenizer, tasks, "off").mean <= 0.10


@pytest.mark.slow
def test_published_bands(model, tokenizer):
    tasks = pocket_tasks("held_out", 760, 12)
    assert measure(model, tokenizer, tasks, "solo").mean >= 0.85
    assert 0.05 <= measure(model, tokenizer, tasks, "on").mean <= 0.25
    assert measure(model, tokenizer, tasks, "off").mean <= 0.05
    assert measure(model, tokenizer, tasks, "on", greedy=True).mean <= 0.05, "greedy decoding must not show the skill"


def test_card_says_what_was_measured():
    card = (Path(MODEL_DIR) / "README.md").read_text()
    summary = json.loads((Path(MODEL_DIR) / "pretrain.json").read_text())
    assert f"{summary['parameters']:,}" in card
    for name, share in BLIND_GUESS.items():
        assert f"| {name} |" in card
        assert f"{share:.3f}" in card
