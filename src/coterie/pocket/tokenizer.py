"""The pocket tokenizer: one token for each word that the generator can write, single digits, and bytes for everything else.

It is byte-level BPE without merges. A piece of text that is in the vocabulary is one token (`ignore_merges`), any other falls
apart into its bytes, so every text can be encoded and decoding gives it back exactly. Four things keep prompts short: a word
carries the space before it, a word or sign before a number also carries the space after it ("has " in "has 12"), the labels of a
prompt ("\\nQuestion:", "\\nAnswer:") are one token each, and so is "\\boxed{".
"""

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PAD, USER, ASSISTANT, SYSTEM, END = "<|pad|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>"
SPECIALS = (PAD, USER, ASSISTANT, SYSTEM, END)

PIECE = (
    r"[ \n]?\([a-z ]+\)"  # "(nothing yet)", "(no message)"
    r"|\n?[A-Z][a-z]+:"  # labels
    r"| ?\\boxed\{"
    r"|\d"
    r"| ?[A-Za-z]+(?: (?=\d))?"
    r"|[^\sA-Za-z\d](?: (?=\d))?"
    r"|\s"
)

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}"
)


def splitter() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(PIECE), behavior="isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


def build(texts: list[str], least: int = 2) -> PreTrainedTokenizerFast:
    """A tokenizer with every piece that occurs at least `least` times in `texts`. Pieces are sorted, so the same texts in any
    order give the same ids: specials, then the 256 bytes, then the pieces."""
    split = splitter()
    counts: dict[str, int] = {}
    for text in texts:
        for piece, _ in split.pre_tokenize_str(text):
            counts[piece] = counts.get(piece, 0) + 1
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = sorted(piece for piece, count in counts.items() if count >= least and len(piece) > 1)
    vocabulary = {token: i for i, token in enumerate((*SPECIALS, *alphabet, *pieces))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIALS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[USER, ASSISTANT, SYSTEM],
        chat_template=CHAT_TEMPLATE,
        model_max_length=512,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
