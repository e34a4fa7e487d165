"""transformers' notice of a wrong regex is Mistral's business, and keeping it off changes no tokenizer."""

import json
import logging

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from coterie.tokens import _no_false_alarm, load_tokenizer
from tests.fakes import TEMPLATE, byte_tokenizer


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A tokenizer of more than 100,000 tokens, from which the notice begins, in a folder whose config.json names no version."""
    path = tmp_path_factory.mktemp("large")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    spec = json.loads(byte_tokenizer().backend_tokenizer.to_str())
    vocab = {character: i for i, character in enumerate(alphabet)} | {f"never{i}": len(alphabet) + 4 + i for i in range(100_001)}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend = Tokenizer.from_str(json.dumps({**spec, "model": json.loads(backend.to_str())["model"]}))
    PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>", chat_template=TEMPLATE).save_pretrained(path)
    return path


def notices(folder, model_type, caplog):
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    transformers_logging.enable_propagation()
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_warning()
    try:
        with caplog.at_level(logging.WARNING):
            tokenizer = load_tokenizer(str(folder), model_type=model_type)
    finally:
        transformers_logging.set_verbosity(before)
        transformers_logging.disable_propagation()
    return tokenizer, [record for record in caplog.records if "regex" in record.getMessage()]


@pytest.mark.parametrize("model_type", ["qwen2", "llama"])
def test_no_notice_and_the_same_tokenizer(large, caplog, model_type):
    tokenizer, said = notices(large, model_type, caplog)
    assert not said
    plain = AutoTokenizer.from_pretrained(str(large))
    assert tokenizer._tokenizer.backend_tokenizer.to_str() == plain.backend_tokenizer.to_str()
    text = "It's 12,345 km; naïve 'TEST'\n\n  x"
    assert tokenizer._tokenizer(text)["input_ids"] == plain(text)["input_ids"]


def test_mistrals_own_are_not_silenced(large, caplog, monkeypatch):
    """What is passed on for them is nothing, whatever this version of transformers makes of it."""
    asked = {}
    load = AutoTokenizer.from_pretrained
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", lambda source, **options: (asked.update(options), load(source))[1])
    for model_type in ("mistral", "pixtral", None):
        load_tokenizer(str(large), model_type=model_type)
        assert asked == {}
    load_tokenizer(str(large), model_type="qwen2")
    assert asked == {"fix_mistral_regex": False}


def test_a_transformers_without_the_setting_is_not_given_it(monkeypatch):
    assert _no_false_alarm("qwen2") == {"fix_mistral_regex": False}
    monkeypatch.setattr(PreTrainedTokenizerFast, "_patch_mistral_regex", lambda tokenizer: tokenizer)
    assert _no_false_alarm("qwen2") == {}
