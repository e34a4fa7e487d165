"""One copy alone: the prompts, and the published rule by which the speakers of a reply are counted."""

import re
from dataclasses import replace

import pytest

from coterie.protocols import solo, team
from coterie.protocols.pages import Page
from coterie.types import Task
from tests.fakes import task
from tests.protocols.scripted import played, prompt

STORY = Task(
    "p", "Tom has 3 pens. He gets 4. He loses 2. How many now?", "5", "How many now?", meta={"facts": ("a 3.", "b 4.", "c 2.")}
)


def test_an_instruction_model_is_given_the_question_alone():
    view = solo.PLAIN.view(STORY)
    assert view.messages == (("system", solo.PLAIN.system), ("user", STORY.question))
    assert team.PLAIN.view(STORY).messages[1] == ("user", STORY.question)
    assert all("\\boxed" in page.system for page in (solo.PLAIN, team.PLAIN))


def test_the_pocket_model_reads_the_second_half_of_the_facts_from_its_partner():
    """Breaks when the facts stand all under "Facts:", where the pocket model has nothing left to learn."""
    body = "Facts: a 3.\nQuestion: How many now?\nPartner: I know: b 4. c 2.\n{}Answer:"
    assert solo.WORDINGS["pocket"].view(STORY).messages == (("user", body.format("")),)
    assert team.WORDINGS["pocket"].view(STORY).messages == (("user", body.format("Solver, Checker, Lead. ")),)


def test_a_page_of_some_facts_shows_no_others():
    """Whatever its wording: breaks when the whole question, or the second half of the story, is put in all the same."""
    page = Page("", "{question}|{facts}|{talk}", told="Partner: {facts}")
    assert page.view(STORY, ["You: hi"], hand=("b 4.",)).messages == (("user", "|b 4.|You: hi"),)


def test_a_task_without_a_list_of_facts_is_shown_as_its_question():
    plain = replace(STORY, meta={})
    ((_, body),) = solo.WORDINGS["pocket"].view(plain).messages
    assert body == f"Facts: {STORY.question}\nQuestion: How many now?\n(nothing yet)\nAnswer:"


def test_braces_of_a_task_are_text():
    odd = Task("p", "{ask} {0}", "5", "{talk}", meta={"facts": ("{question}", "{facts}")})
    assert solo.PLAIN.view(odd).messages[1] == ("user", "{ask} {0}")
    ((_, body),) = solo.WORDINGS["pocket"].view(odd).messages
    assert body == "Facts: {question}\nQuestion: {talk}\nPartner: I know: {facts}\nAnswer:"


@pytest.mark.parametrize("kind", [solo.Solo, team.Team])
def test_one_final_message_that_hears_nothing(kind):
    protocol = kind(9, solo.PLAIN)
    episode = played(protocol, task(), ["7"])
    (message,) = episode.messages
    assert (message.final, message.heard, message.score) == (True, (), 1.0)
    assert (episode.reward, tuple(episode.scores)) == (1.0, protocol.seats)
    assert task().question in prompt(message)
    assert protocol.caps() == {"protocol.final_tokens": 9}
    assert protocol.fact_seats == ()


@pytest.mark.parametrize(
    ("text", "speakers"),
    [
        ("Solver: 3 + 4 = 7\nChecker: yes\nLead: 7", ["Solver", "Checker", "Lead"]),
        ("  Solver: a\n\t- Checker : b", ["Solver", "Checker"]),
        ("**Solver:** a\n**Lead**: b\n### Checker: c\n> Lead: d", ["Solver", "Lead", "Checker", "Lead"]),
        ("1. Solver: a", []),
        ("The Solver: a\nSolver says: b\nSolvers: c\nChecker\n: d", []),
        ("", []),
    ],
)
def test_turns_are_names_that_begin_a_line_with_a_colon(text, speakers):
    assert list(team.turns(text)) == speakers


def test_the_example_in_the_prompt_is_talk_by_the_rule_itself():
    assert team.talks(team.PLAIN.system)
    assert re.search(r"^Checker:", team.PLAIN.system, re.MULTILINE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Solver: a\nChecker: b\nLead: c", True),
        ("Solver: a\nChecker: b", False),  # two turns
        ("Checker: a\nChecker: b\nChecker: c", False),  # one speaker
        ("Solver: a\nLead: b\nSolver: c", False),  # nobody checks
        ("Checker: a\nLead: b\nLead: c", True),
    ],
)
def test_talk_needs_three_turns_two_speakers_and_a_checker(text, expected):
    assert team.talks(text) is expected


def test_measures_are_means_over_replies():
    protocol = team.Team(99, team.PLAIN)
    episodes = [played(protocol, task(), [text]) for text in ("Solver: a\nChecker: b\nLead: c", "Lead: 7", "7", "7")]
    assert protocol.measures(episodes, {}) == {"talks": 0.25, "turns": 1.0}
    assert protocol.measures([], {}) == {"talks": None, "turns": None}
