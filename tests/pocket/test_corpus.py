"""The pre-training text: what it plants, that it never touches held-out numbers, and that it is the same with any worker count."""

import random
import re
from collections import Counter

import torch

from coterie.pocket.batches import IGNORE, Stream, encode, pack
from coterie.pocket.corpus import ALL, OPENINGS, WORK, Document, document, draw_story, talk_turn
from coterie.pocket.pretrain import make_tokenizer
from coterie.pocket.tokenizer import SPECIALS
from coterie.protocols.chat import POCKET
from coterie.tasks.pocket import as_task, deal, split_of
from coterie.tasks.pocket_families import FAMILIES


def documents(count: int, seed: int = 0) -> list[Document]:
    rng = random.Random(seed)
    return [document(rng) for _ in range(count)]


def test_no_control_tokens_and_no_system_prompt():
    for d in documents(500):
        ((role, content),) = d.view.messages
        assert role == "user"
        assert not any(special in content + d.reply for special in SPECIALS)


def test_held_out_numbers_are_never_worked_through():
    """Also not in the solutions of invented problems."""
    rng = random.Random(1)
    for name in ("times", "timestotal", "add2"):
        for _ in range(700):
            story = draw_story(rng, FAMILIES[name], "train")
            assert split_of(name, story.numbers) == "train"
            d = talk_turn(rng, story, as_task(story, deal(rng, 2), prove=False))
            if found := re.match(r"(\d+)[*+](\d+)=", d.reply):
                assert split_of(name, (int(found[1]), int(found[2]))) == "train"


def test_solo_solutions_are_right():
    for d in documents(600):
        if d.view.messages[0][1].endswith(f"{POCKET.nothing}\n{POCKET.answer}"):
            for left, operator, right, result in re.findall(r"(\d+)([-+*])(\d+)=(\d+)", d.reply):
                assert {"+": int(left) + int(right), "-": int(left) - int(right), "*": int(left) * int(right)}[operator] == int(
                    result
                )
            assert re.fullmatch(r"(\d+[-+*]\d+=(\d+)\. )+\\boxed\{\2\}", d.reply)


def test_planted_chances():
    """Shares of the behaviours that the model card names, from the text itself; and the skill is never the likeliest choice."""
    rng = random.Random(2)
    first, last = Counter(), Counter()
    for _ in range(6000):
        story = draw_story(rng, FAMILIES["add3"], "train")
        task = as_task(story, deal(rng, 3), prove=False)
        d = talk_turn(rng, story, task)
        prompt = d.view.messages[0][1]
        if prompt.endswith(POCKET.say):
            first["all" if d.reply.startswith(ALL) else "hello" if d.reply.startswith("Hello") else "other"] += 1
        elif re.search(r"\nPartner: (I know|My facts): ", prompt):
            last["work" if d.reply[0].isdigit() else "guess"] += 1
    assert abs(first["all"] / first.total() - OPENINGS["all"]) < 0.04
    assert abs(last["work"] / last.total() - WORK) < 0.04
    assert max(OPENINGS, key=OPENINGS.get) == "hello"
    assert WORK < 0.5


def test_longest_message_is_well_below_the_cap():
    tokenizer = make_tokenizer(0)
    lengths = [len(ids) - start for ids, start in encode(tokenizer, documents(3000, 3))]
    assert max(lengths) <= 46


def test_batches_are_the_same_with_any_number_of_workers():
    tokenizer = make_tokenizer(0)
    stream = Stream(tokenizer, 7, 16, 3)
    alone = list(stream)
    loaded = list(torch.utils.data.DataLoader(stream, batch_size=None, num_workers=2))
    assert len(alone) == len(loaded) == 3
    for a, b in zip(alone, loaded, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_packed_row_equals_lone_documents():
    """Packing is only a matter of speed: the loss of packed documents is that of the documents one by one."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from coterie.pocket.pretrain import loss_of

    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1
        )
    ).eval()
    items = [(torch.randint(1, 50, (n,)).tolist(), start) for n, start in ((9, 4), (5, 3), (12, 10), (7, 2))]
    packed = pack(items, pad=0, width=16)
    total, count = 0.0, 0
    for ids, start in items:
        logits = model(input_ids=torch.tensor([ids])).logits[0, start - 1 : -1]
        total += torch.nn.functional.cross_entropy(logits, torch.tensor(ids[start:]), reduction="sum").item()
        count += len(ids) - start
    assert int((packed.labels_BT != IGNORE).sum()) == count
    assert abs(loss_of(model, packed).item() - total / count) < 1e-5
