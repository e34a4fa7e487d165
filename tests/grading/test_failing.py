"""A grader that fails is counted and never a zero: for answers, and for notes that a protocol wants graded."""

from coterie.casts.self_play import SelfPlay
from coterie.engines.base import Sampler
from coterie.evaluate import evaluate
from coterie.grading.base import Grader, GradingError
from coterie.hall import Hall, Plan
from coterie.play import play
from coterie.protocols.base import Ask, Protocol
from coterie.types import POLICY, View
from tests.fakes import EqualText, ScriptedEngine, chat_tokenizer, task

TOKENIZER = chat_tokenizer()


class Notes(Protocol):
    """A posts a note and a second one, both graded; then A and B answer. `EqualText` cannot grade "?"."""

    seats = ("A", "B")

    async def play(self, task, table):
        for number in ("note 1", "note 2"):
            await table.say("A", View((("user", number),)), max_tokens=5, graded=True)
        await table.say_all([Ask(seat, View((("user", f"answer {seat}"),)), 5, final=True) for seat in self.seats])


def hall(grader=None, **said):
    """The messages, by the end of their prompts; everything else is the right answer, 7."""
    names = {name.replace("_", " "): text for name, text in said.items()}

    def speak(request):
        prompt = TOKENIZER.decode(request.prompt_ids)
        return next((text for name, text in names.items() if name in prompt), "7")

    return Hall(Notes(), ScriptedEngine(TOKENIZER, speak), TOKENIZER, grader or EqualText(), Sampler(1.0), 0)


def episode(**said):
    return play([Plan(task(), 0, {"A": POLICY, "B": POLICY}, ("test",))], hall(**said))[0]


def test_graded_notes_have_their_own_scores():
    played = episode(note_1="wrong", answer_B="wrong")
    assert [m.score for m in played.messages] == [0.0, 1.0, 1.0, 0.0]
    assert (played.scores, played.reward, played.errors) == ({"A": 1.0, "B": 0.0}, 0.5, {})


def test_a_note_that_cannot_be_graded_is_an_error_beside_the_scores_of_the_answers():
    """Breaks when the note's error is booked on the seat, whose answer was graded, or its score becomes 0."""
    played = episode(note_1="?")
    assert [m.score for m in played.messages] == [None, 1.0, 1.0, 1.0]
    assert played.scores == {"A": 1.0, "B": 1.0}
    assert played.errors == {"A, message 1": "question mark"}
    assert played.reward is None


def test_every_failure_is_counted_even_of_one_seat():
    played = episode(note_1="?", note_2="?", answer_A="?")
    assert set(played.errors) == {"A, message 1", "A, message 2", "A"}
    assert (played.scores, played.reward) == ({"B": 1.0}, None)


def test_the_evaluation_counts_them_and_leaves_them_out_of_the_score():
    class Sometimes(Grader):
        """Fails on every message of the first task."""

        def grade(self, answers):
            return [GradingError("died") if i < 4 else float(text == gold) for i, (text, gold) in enumerate(answers)]

    of = evaluate(hall(Sometimes(), answer_B="wrong"), [task(1), task(2)], SelfPlay(), 1)
    assert (of.score, of.errors, of.ungraded) == (0.5, 4, 1)
    assert of.per_task == {"t1": (None,), "t2": (0.5,)}
