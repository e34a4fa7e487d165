"""From a protocol's settings to the protocol: what each setting means."""

import pytest

from coterie import builtin as _  # noqa: F401 (registers the kinds)
from coterie.config.play import BoardConfig, ChatConfig, DebateConfig, SoloConfig, TeamConfig
from coterie.kinds import About, make
from coterie.protocols import board, chat, debate, solo, team
from coterie.types import CoterieError

NOBODY = About(None)  # pyright: ignore[reportArgumentType] (a wording that is named asks for no model)


def protocol(config):
    return make("protocol", config, NOBODY)


@pytest.mark.parametrize("words", ["plain", "pocket"])
def test_every_protocol_has_both_wordings(words):
    for module, config in (
        (solo, SoloConfig(kind="solo", wording=words)),
        (team, TeamConfig(kind="team", wording=words)),
        (chat, ChatConfig(wording=words)),
        (board, BoardConfig(kind="board", wording=words)),
        (debate, DebateConfig(kind="debate", wording=words)),
    ):
        made = protocol(config)
        assert made.wording is module.WORDINGS[words]
        assert set(made.caps()) <= {f"protocol.{name}" for name in type(config).model_fields}


@pytest.mark.parametrize(("visibility", "seen"), [("own", (1,)), ("ring", (1, 2, 3)), ("all", (1, 2, 3, 0))])
def test_whose_notes_the_second_of_four_readers_sees(visibility, seen):
    config = BoardConfig(kind="board", copies=4, visibility=visibility, ring=3, wording="plain")
    assert protocol(config).seen(1) == seen


def test_a_ring_larger_than_the_team_is_refused():
    config = BoardConfig(kind="board", copies=2, visibility="ring", ring=3, wording="plain")
    with pytest.raises(CoterieError, match=r"protocol\.ring = 3 is more notes than protocol\.copies = 2 write"):
        protocol(config)


def test_further_settings_arrive():
    assert protocol(BoardConfig(kind="board", facts="split", wording="plain")).fact_seats == ("A", "B")
    assert protocol(BoardConfig(kind="board", wording="plain")).fact_seats == ()
    off = protocol(DebateConfig(kind="debate", copies=2, rounds=3, deliver=False, reward="mean", wording="plain"))
    assert (len(off.seats), off.deliver, off.vote) == (6, False, False)
    assert protocol(DebateConfig(kind="debate", wording="plain")).vote is True
    assert protocol(ChatConfig(history="dialogue", wording="plain")).history == "dialogue"
    assert protocol(ChatConfig(wording="plain")).history == "rebuilt"
    spoken = protocol(DebateConfig(kind="debate", wording="plain")).answer
    assert spoken("It is \\boxed{1,000}") == spoken("1000.") == "1000"
