"""Checks of how messages are written: their lengths, cut ones, lost boxes, text that has come apart."""

from collections.abc import Sequence

from coterie.checks.base import Evidence, Finding, Record
from coterie.checks.text import copies, loops

DRIFT, DRIFT_NOTE = 3.0, 1.5
"""By what factor messages grow or shrink. Half as long again is worth a note; three times is another way of answering, and the gain
may be that of more room to think, or of saying nothing."""

CUT, CUT_NOTE = 0.10, 0.02
"""The share of a turn's messages that the cap ended. A cut answer has mostly no box and is scored as wrong, so a tenth of them is
a tenth of the score that measures the cap."""

BOX, BOX_NOTE = 0.05, 0.01
"""By how much the share of answers with a box fell below the untrained model's. As large as the smallest effect that recipes ask
about by default: a score can have moved by as much for the form alone."""

DEGENERATE, DEGENERATE_NOTE = 0.05, 0.01
"""By how much the share of messages that loop, or that copy their prompt, rose above the untrained model's. Models that talk well
loop in less than one message of a hundred."""

LENGTHS = {"message_tokens": "messages", "final_tokens": "answers"}


def length(evidence: Evidence) -> Finding:
    """Messages and answers against the untrained model's, in tokens."""
    factors, said = [], []
    for key, name in LENGTHS.items():
        now, then = evidence.measure(key), evidence.measure_before(key)
        if now and then:
            factors.append(max(now / then, then / now))
            said.append(f"{name} went from {then:.1f} to {now:.1f} tokens")
    if not factors:
        return "unknown", "there are no lengths of messages before and after training to compare"
    text = ", ".join(said)
    if max(factors) > DRIFT:
        return "fault", f"{text}, by a factor above {DRIFT:g}; compare the arms at equal lengths (caps, credit.length_cost)"
    return ("note" if max(factors) > DRIFT_NOTE else "ok"), text


def cut(evidence: Evidence) -> Finding:
    """Messages that the cap ended; the worst turn counts."""
    measures = evidence.record.get("measures") or {}
    by_turn = {turn: share for turn, share in (measures.get("cut_by_turn") or {}).items() if share is not None}
    if not by_turn:
        return "unknown", "the record does not say which messages the cap ended"
    turn, worst = max(by_turn.items(), key=lambda item: item[1])
    said = f"the cap ended {worst:.1%} of the messages of turn {int(turn) + 1}, the most of any turn"
    if worst > CUT:
        return "fault", f"{said}; raise protocol.message_tokens or final_tokens, or set credit.stop_bonus"
    return ("note" if worst > CUT_NOTE else "ok"), said


def box(evidence: Evidence) -> Finding:
    """Answers that lost their box."""
    now, then = evidence.measure("boxed"), evidence.measure_before("boxed")
    if now is None or then is None:
        return "unknown", "there is no share of boxed answers before and after training to compare"
    said = f"{then:.1%} of the answers had a box before training, {now:.1%} have one now"
    if then - now > BOX:
        return (
            "fault",
            f"{said}; read evaluation.jsonl, and set grading.boxed_only = true or raise protocol.final_tokens",
        )
    return ("note" if then - now > BOX_NOTE else "ok"), said


def degenerate(evidence: Evidence) -> Finding:
    """Messages that say one thing over and over, and messages that are nothing but their prompt said again."""
    now, then = _shares(evidence.conversations), _shares(evidence.before_conversations)
    if now is None:
        return "unknown", "there are no held-out conversations to read (evaluation.jsonl, evaluate.sample_episodes)"
    looped, copied = now
    said = f"{looped:.1%} of the messages loop and {copied:.1%} copy their prompt"
    said += f" ({then[0]:.1%} and {then[1]:.1%} before training)" if then else ""
    worst = max(looped - (then or (0, 0))[0], copied - (then or (0, 0))[1])
    if worst > DEGENERATE:
        return "fault", f"{said}; read evaluation.jsonl, and train less (train.optimizer.lr, train.steps) or cap messages lower"
    return ("note" if worst > DEGENERATE_NOTE else "ok"), said


def _shares(conversations: Sequence[Record]) -> tuple[float, float] | None:
    """Shares of messages that loop and that copy; None without messages."""
    flags = [
        (loops(message["text"]), copies(message["text"], _prompt(conversation, message)))
        for conversation in conversations
        for message in conversation["messages"]
    ]
    return (sum(a for a, _ in flags) / len(flags), sum(b for _, b in flags) / len(flags)) if flags else None


def _prompt(conversation: Record, message: Record) -> list[str]:
    """What a message may only repeat: the question, and what it heard. A seat's own facts are there to be passed on, so they count
    for its final message alone; and a final message that says what another final one said agrees with it."""
    heard = set(message["heard"])
    texts = [other["text"] for other in conversation["messages"] if other["turn"] in heard and not other["final"]]
    texts.append(conversation.get("ask", ""))
    if message["final"]:
        texts += [conversation.get("question", ""), *(conversation.get("facts") or {}).get(message["seat"], ())]
    return texts
