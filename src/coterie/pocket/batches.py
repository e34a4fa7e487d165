"""Documents to packed training batches. Batch i depends on the seed and i alone, so the stream is the same with any number of
workers, and a run can be repeated."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from coterie.pocket.corpus import Document, document

IGNORE = -100
WIDTH = 160
"""Tokens in a packed row; the longest document is shorter."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Several documents side by side in each row. `labels_BT[b, t]` is the token to predict at t (IGNORE: not trained),
    `doc_BT` numbers the documents of a row (-1: padding) and `position_BT` counts from 0 in each."""

    ids_BT: torch.Tensor
    labels_BT: torch.Tensor
    doc_BT: torch.Tensor
    position_BT: torch.Tensor

    def mask_B1TT(self) -> torch.Tensor:
        """True where a token may attend: earlier tokens of its own document (padding sees itself, to keep softmax finite)."""
        width = self.ids_BT.shape[1]
        causal = torch.ones(width, width, dtype=torch.bool, device=self.ids_BT.device).tril()
        return ((self.doc_BT[:, :, None] == self.doc_BT[:, None, :]) & causal)[:, None]

    def to(self, device: torch.device) -> "Batch":
        return Batch(
            *(getattr(self, name).to(device, non_blocking=True) for name in ("ids_BT", "labels_BT", "doc_BT", "position_BT"))
        )


def encode(tokenizer: Any, documents: list[Document]) -> list[tuple[list[int], int]]:
    """For each document its ids and the length of its prompt. The texts of the corpus hold no control tokens (a test checks)."""
    user, assistant = (tokenizer.convert_tokens_to_ids(f"<|{role}|>") for role in ("user", "assistant"))
    end = tokenizer.eos_token_id
    texts = [text for d in documents for text in (d.view.messages[0][1], d.reply)]
    pieces = [encoding.ids for encoding in tokenizer.backend_tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    return [
        ([user, *prompt, end, assistant, *reply, end], len(prompt) + 3)
        for prompt, reply in zip(pieces[::2], pieces[1::2], strict=True)
    ]


def pack(documents: list[tuple[list[int], int]], pad: int, width: int = WIDTH) -> Batch:
    """First-fit, longest first: few enough rows and no document is cut."""
    rows: list[list[tuple[list[int], int]]] = []
    room: list[int] = []
    for item in sorted(documents, key=lambda d: -len(d[0])):
        place = next((i for i, free in enumerate(room) if free >= len(item[0])), None)
        if place is None:
            rows.append([])
            room.append(width)
            place = len(rows) - 1
        rows[place].append(item)
        room[place] -= len(item[0])
    ids, labels, doc, position = [], [], [], []
    for row, free in zip(rows, room, strict=True):
        ids.append([token for item, _ in row for token in item] + [pad] * free)
        labels.append(
            [x for item, start in row for x in ([IGNORE] * (start - 1) + item[start:] + [IGNORE])] + [IGNORE] * free,
        )
        doc.append([i for i, (item, _) in enumerate(row) for _ in item] + [-1] * free)
        position.append([t for item, _ in row for t in range(len(item))] + [0] * free)
    return Batch(*(torch.tensor(part) for part in (ids, labels, doc, position)))


class Stream(IterableDataset):
    """Packed batches 0, 1, 2, … < `count`; worker w of K makes batches w, w + K, …, which a DataLoader hands out in turn."""

    def __init__(self, tokenizer: Any, seed: int, documents: int, count: int):
        self.tokenizer, self.seed, self.documents, self.count = tokenizer, seed, documents, count

    def __iter__(self) -> Iterator[tuple[torch.Tensor, ...]]:
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        for i in range(first, self.count, step):
            rng = random.Random(f"coterie pocket corpus {self.seed} {i}")
            packed = pack(encode(self.tokenizer, [document(rng) for _ in range(self.documents)]), self.tokenizer.pad_token_id)
            yield packed.ids_BT, packed.labels_BT, packed.doc_BT, packed.position_BT
