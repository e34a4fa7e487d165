"""What the arms of a recipe differ in, as it is checked and as it is told."""

import io

import pytest
from rich.console import Console

from coterie.arms import Change, changes, declared, is_one
from coterie.recipe import load_recipe, recipe_names
from coterie.report.explain import print_explanation
from coterie.types import CoterieError

RECIPE = """
title = "Talk"
question = "Does it help?"
baseline = "off"
seeds = [1, 2]
profile = "small"
[settings]
protocol = {{ kind = "chat", deliver = false }}
[arms.off]
change = "The baseline."
[arms.on]
change = "Messages [bold]arrive[/bold]."
{arm}
[profiles.small]
about = "Small."
[profiles.large]
about = "Large."
[profiles.large.settings]
model = {{ path = "some/model" }}
"""


@pytest.fixture
def recipe(tmp_path):
    def write(arm: str):
        (tmp_path / "mine.toml").write_text(RECIPE.format(arm=arm))
        return load_recipe(str(tmp_path / "mine.toml"))

    return write


def explained(recipe, profile="small", width=80):
    out = io.StringIO()
    print_explanation(recipe, profile, Console(file=out, width=width, highlight=False))
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("name", recipe_names())
def test_every_arm_of_every_recipe_is_one_change_or_says_why_not(name):
    """`load_recipe` refuses it otherwise, which the tests below show; and every recipe can be explained in every profile."""
    recipe = load_recipe(name)
    for profile in recipe.file.profiles:
        for arm, found in changes(recipe, profile).items():
            assert is_one(found) or recipe.file.arms[arm].why_several
        lines = explained(recipe, profile)
        assert max(map(len, lines)) <= 80
        assert [line for line in lines if line.endswith("(baseline)")] == [f"{recipe.file.baseline} (baseline)"]


def test_one_setting(recipe):
    """The whole text, as it stands in a terminal of 80 columns without colour; what the author wrote is not read as markup."""
    assert explained(recipe('[arms.on.settings]\nprotocol = { order = ["A", "B"] }')) == [
        "mine: Talk",
        "Does it help?",
        "",
        "profile          small: Small.",
        "seeds            1 2",
        "compared by      score (team reward on held-out tasks)",
        "smallest effect  0.05 (a smaller difference is of no interest here)",
        "",
        "off (baseline)",
        "  The baseline.",
        "",
        "on",
        "  Messages [bold]arrive[/bold].",
        "  1 change: protocol.order",
        '    protocol.order  ["A", "B", "A", "B"]  ->  ["A", "B"]',
    ]


def test_another_kind_of_one_table_is_one_change(recipe):
    found = changes(recipe('[arms.on.settings]\ndraw = { kind = "dynamic", episodes = 6 }'), "small")["on"]
    assert found == [
        Change("draw.kind", "fixed", "dynamic"),
        Change("draw.episodes", 4, 6),
        Change("draw.rounds", None, 3),
    ]
    assert is_one(found)


def test_settings_of_a_kind_that_the_arm_does_not_have_are_a_dash(recipe):
    lines = explained(recipe('[arms.on.settings]\ncredit = { kind = "leave_one_out", replays = 2 }'))
    assert lines[-3:] == [
        "  1 change: another kind of credit, with its settings",
        '    credit.kind     "team_mean"  ->  "leave_one_out"',
        "    credit.replays  -            ->  2",
    ]


@pytest.mark.parametrize(
    ("arm", "keys"),
    [
        ("[arms.on.settings]\nprotocol = { deliver = true, final_tokens = 64 }", "protocol.deliver, protocol.final_tokens"),
        ("[arms.on.settings]\nprotocol = { deliver = true }\ntrain = { steps = 9 }", "protocol.deliver, train.steps"),
        ('[arms.on.settings]\ncredit = { kind = "raft" }\nsampling = { temperature = 0.5 }', "credit.kind, sampling.temperature"),
    ],
)
def test_several_changes_need_a_reason(recipe, arm, keys):
    with pytest.raises(CoterieError, match=rf"mine.toml \[arms.on\]: differs .* more than one setting \({keys}\) .* why_several"):
        recipe(arm)
    lines = explained(recipe(f'why_several = "They belong together."\n{arm}'))
    assert "  2 changes: They belong together." in lines


def test_an_arm_that_changes_nothing_is_refused(recipe):
    with pytest.raises(CoterieError, match=r"\[arms.on\]: does not differ from the baseline off in profile small"):
        recipe("[arms.on.settings]\nprotocol = { deliver = false }")


def test_what_may_differ_between_records_is_what_the_arms_differ_in(recipe):
    """All settings of the kinds, not only those that the file names: a record has the others too."""
    assert declared(recipe('[arms.on.settings]\ncredit = { kind = "leave_one_out" }')) == ["credit.kind", "credit.replays"]


def test_changes_are_counted_by_hand():
    a, b, c = Change("draw.kind", "x", "y"), Change("draw.n", 1, 2), Change("drawing.n", 1, 2)
    assert is_one([])
    assert is_one([b])
    assert is_one([a, b])
    assert not is_one([b, c])
    assert not is_one([a, c]), "drawing is another table than draw"
