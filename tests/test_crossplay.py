"""Cross-play between the seeds of an arm: who sits where, what the means are of, and that players are what they are called."""

import json
import shutil
from dataclasses import replace

import pytest

from coterie.again import trained_stage
from coterie.casts.self_play import FixedCast
from coterie.cli import main
from coterie.crossplay import crossplay, finished_runs, means, of_seed, sides
from coterie.evaluate import cross_casts, evaluate, role
from coterie.types import BASE, POLICY, CoterieError
from tests.end_to_end.strangers import strangers

BOARD = ("writer 0", "writer 1", "reader 0", "reader 1")


def test_the_policy_meets_each_partner_in_each_seat():
    casts = cross_casts(("A", "B"), (BASE, "chat-seed18"))
    assert casts == {
        "A=policy,B=base": {"A": POLICY, "B": BASE},
        "A=base,B=policy": {"A": BASE, "B": POLICY},
        "A=policy,B=chat-seed18": {"A": POLICY, "B": "chat-seed18"},
        "A=chat-seed18,B=policy": {"A": "chat-seed18", "B": POLICY},
    }
    assert list(cross_casts(("A", "B", "C"))) == ["A=policy,B=base,C=base", "A=base,B=policy,C=base", "A=base,B=base,C=policy"]


def test_on_a_board_the_roles_meet_and_not_the_seats():
    assert cross_casts(BOARD) == {
        "writer=policy,reader=base": dict(zip(BOARD, [POLICY, POLICY, BASE, BASE], strict=True)),
        "writer=base,reader=policy": dict(zip(BOARD, [BASE, BASE, POLICY, POLICY], strict=True)),
    }


def test_seats_that_are_all_alike_are_tried_once_and_many_roles_are_not_all_tried():
    alike = tuple(f"debater {i}" for i in range(5))
    assert cross_casts(alike) == {"debater 0=policy,others=base": {**dict.fromkeys(alike, BASE), "debater 0": POLICY}}
    assert len(cross_casts(tuple("ABCDEFGH"))) == 4
    assert cross_casts(("solo",)) == {}
    assert [role(seat) for seat in ("writer 2", "A", "x12", "reader-1", "7")] == ["writer", "A", "x", "reader", "7"]


@pytest.mark.parametrize(
    ("seats", "expected"),
    [
        (("A", "B"), (("A", ("A",)), ("B", ("B",)))),
        (("A", "B", "C"), (("A", ("A",)), ("others", ("B", "C")))),
        (BOARD, (("writer", BOARD[:2]), ("reader", BOARD[2:]))),
        (("copy 0", "copy 1", "copy 2"), (("copy 0", ("copy 0",)), ("others", ("copy 1", "copy 2")))),
        (("copy 0", "copy 1"), (("copy 0", ("copy 0",)), ("copy 1", ("copy 1",)))),
    ],
)
def test_two_sides(seats, expected):
    assert sides(seats) == expected


def test_a_single_seat_has_nobody_to_play_with():
    with pytest.raises(CoterieError, match="two seats or more"):
        sides(("solo",))


SCORES = [[0.8, 0.2, 0.4], [0.6, 0.7, None], [0.1, 0.3, 0.05]]
"""Two seeds, and the base in the last row and column."""


def test_means_by_hand():
    assert means(SCORES) == pytest.approx(
        {
            "with itself": (0.8 + 0.7) / 2,
            "with another seed": (0.2 + 0.6) / 2,
            "with the base": (0.4 + 0.1 + 0.3) / 3,
            "base with itself": 0.05,
        }
    )
    assert of_seed(SCORES, 0) == pytest.approx({"with itself": 0.8, "with another seed": 0.4, "with the base": 0.25})
    assert of_seed(SCORES, 1)["with the base"] == 0.3
    assert means([[0.5, 0.1], [0.2, 0.0]])["with another seed"] is None


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    strangers(out)
    return out


class Recorder:
    """Who said what: the score alone is too coarse to tell players apart."""

    def __init__(self, monkeypatch):
        self.said = {}
        monkeypatch.setattr("coterie.crossplay.evaluate", self)

    def __call__(self, hall, tasks, cast, episodes):
        result = evaluate(hall, tasks, cast, episodes)
        key = tuple(cast.by_seat.values())
        assert key not in self.said, "a pair was played twice"
        self.said[key] = [[message.text for message in episode.messages] for episode in result.episodes]
        return result


def test_every_player_is_the_run_that_it_is_named_for(runs, monkeypatch):
    """The oracle loads one run at a time as its own policy, through its checkpoint. Breaks if rows and columns are swapped, an
    adapter is loaded under another's name, or the base is not the base."""
    heard = Recorder(monkeypatch)
    record = crossplay(runs, "chat", tasks=2)
    assert record["players"] == ["chat-seed17", "chat-seed18", BASE]
    assert (record["rows"], record["columns"], record["held_out"], record["seeds"]) == ("A", "B", 2, [17, 18])
    assert record == json.loads((runs / "crossplay-chat.json").read_text())
    assert (runs / "crossplay-chat.png").stat().st_size > 10_000
    assert len(heard.said) == 9
    for folder in finished_runs(runs, "chat"):
        stage, _ = trained_stage(folder, folder.config())
        hall = replace(stage.evaluation_hall, seed=0)
        for row, column in ((POLICY, POLICY), (POLICY, BASE), (BASE, POLICY), (BASE, BASE)):
            names = tuple(folder.name if player == POLICY else BASE for player in (row, column))
            alone = evaluate(hall, stage.tasks.held_out[:2], FixedCast({"A": row, "B": column}), 1)
            at = [record["players"].index(name) for name in names]
            assert heard.said[names] == [[message.text for message in episode.messages] for episode in alone.episodes]
            assert record["scores"][at[0]][at[1]] == alone.score
    first = {names: [texts[0] for texts in said] for names, said in heard.said.items()}  # A's first message, before B is heard
    assert first["chat-seed17", "chat-seed18"] == first["chat-seed17", BASE] != first[BASE, BASE]


def test_what_is_not_there_is_said(runs, tmp_path):
    with pytest.raises(CoterieError, match="holds no finished run of arm off; it has those of chat"):
        crossplay(runs, "off")
    with pytest.raises(CoterieError, match="there is no such folder"):
        crossplay(tmp_path / "none", "chat")
    shutil.copytree(runs / "chat-seed17", tmp_path / "chat-seed17")
    (tmp_path / "chat-seed17" / "result.json").unlink()
    with pytest.raises(CoterieError, match="no finished run of arm chat; finish one with coterie run"):
        crossplay(tmp_path, "chat")


def test_the_command(runs, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["coterie", "crossplay", str(runs), "--arm", "chat", "--tasks", "1"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    said = capsys.readouterr().out
    for part in ("A (rows) with B (columns)", "chat-seed18", "with another seed", "all pairs", "crossplay-chat.json"):
        assert part in said
    monkeypatch.setattr("sys.argv", ["coterie", "crossplay", str(runs), "--arm", "chat", "--tasks", "0"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
