"""Registers the kinds that come with coterie. The only place where a built-in `kind` turns into a class."""

from collections.abc import Callable
from typing import Any

from coterie.config import play as p
from coterie.config import tasks as t
from coterie.credit.base import CreditRule, plain
from coterie.grading.base import Grader
from coterie.kinds import About, Config, Table, register
from coterie.tasks.base import TaskSet
from coterie.types import CoterieError

# tasks


def _pocket(config: t.PocketTasksConfig, about: About) -> TaskSet:
    from coterie.tasks.pocket import pocket_tasks

    sets = ((split, count) for split, count in (("train", config.train), ("held_out", config.held_out)))
    return TaskSet(*(tuple(pocket_tasks(s, n, config.seed, config.families, about.fact_seats)) for s, n in sets))  # pyright: ignore[reportArgumentType]


def _gsm8k(config: t.GSM8KTasksConfig, about: About) -> TaskSet:
    from coterie.tasks.gsm8k import load_gsm8k

    return load_gsm8k(config.path, config.train, config.held_out, config.seed, about.fact_seats)


def _math(config: t.MathTasksConfig, about: About) -> TaskSet:
    from coterie.tasks.math import load_math

    if about.fact_seats:
        raise CoterieError(
            f'tasks.kind = "math" is not split into facts, which protocol.kind = "{about.run.protocol.kind}" deals to its seats; '
            "use a protocol that gives every copy the whole problem"
        )
    return load_math(config.path, config.train, config.held_out, config.seed, config.levels)


def _jsonl(config: t.JsonlTasksConfig, about: About) -> TaskSet:
    from coterie.tasks.jsonl import load_jsonl

    return load_jsonl(
        config.path, config.held_out_path, config.train, config.held_out, config.seed, about.fact_seats, config.on_reject
    )


def _reasoning_gym(config: t.ReasoningGymTasksConfig, about: About) -> TaskSet:
    from coterie.tasks.reasoning_gym import load_reasoning_gym

    if about.fact_seats:
        raise CoterieError(
            f'tasks.kind = "reasoning_gym" is not split into facts, which protocol.kind = "{about.run.protocol.kind}" deals to its '
            "seats; use a protocol that gives every copy the whole problem"
        )
    if about.run.grading.kind in ("numeric", "exact", "math_verify"):
        raise CoterieError(
            f'tasks.kind = "reasoning_gym" has answers that grading.kind = "{about.run.grading.kind}" cannot judge; '
            'set grading.kind = "reasoning_gym"'
        )
    return load_reasoning_gym(config.specialties, config.settings, config.train, config.held_out, config.seed)


def _pocket_specialties(config: t.PocketSpecialtiesTasksConfig, about: About) -> TaskSet:
    from coterie.tasks.pocket_specialties import specialty_tasks

    return specialty_tasks(config.train, config.held_out, config.seed, config.specialties, about.fact_seats)


# grading


def _numeric(config: t.NumericGraderConfig, about: About) -> Grader:
    from coterie.grading.numeric import Numeric

    return Numeric(boxed_only=config.boxed_only)


def _exact(config: t.ExactGraderConfig, about: About) -> Grader:
    from coterie.grading.exact import Exact

    return Exact(boxed_only=config.boxed_only)


def _math_verify(config: t.MathVerifyGraderConfig, about: About) -> Grader:
    from coterie.grading.math_verify import MathVerify

    return MathVerify(timeout=config.timeout, boxed_only=config.boxed_only, workers=config.workers)


def _reasoning_gym_grader(config: t.ReasoningGymGraderConfig, about: About) -> Grader:
    from coterie.grading.reasoning_gym import ReasoningGym

    return ReasoningGym()


# protocols


def _wording(config: Any, about: About) -> str:
    return config.wording if config.wording != "auto" else ("pocket" if about.pocket else "plain")


def _solo(config: p.SoloConfig, about: About) -> Any:
    from coterie.protocols.solo import WORDINGS, Solo

    wording = _wording(config, about)
    if config.wording == "auto" and wording == "plain" and about.run.tasks.kind == "reasoning_gym":
        wording = "tagged"
    return Solo(config.final_tokens, WORDINGS[wording])


def _team(config: p.TeamConfig, about: About) -> Any:
    from coterie.protocols.team import WORDINGS, Team

    return Team(config.final_tokens, WORDINGS[_wording(config, about)])


def _chat(config: p.ChatConfig, about: About) -> Any:
    from coterie.protocols.chat import WORDINGS, Chat

    words = WORDINGS[_wording(config, about)]
    return Chat(config.order, config.message_tokens, config.final_tokens, config.deliver, words, config.history)


def _board(config: p.BoardConfig, about: About) -> Any:
    from coterie.measures import answer_spelling
    from coterie.protocols.board import WORDINGS, Board

    if config.visibility == "ring" and config.ring > config.copies:
        raise CoterieError(
            f"protocol.ring = {config.ring} is more notes than protocol.copies = {config.copies} write; lower it, or use "
            'protocol.visibility = "all"'
        )
    return Board(
        copies=config.copies,
        visible={"own": 1, "all": config.copies, "ring": config.ring}[config.visibility],
        split=config.facts == "split",
        message_tokens=config.message_tokens,
        final_tokens=config.final_tokens,
        wording=WORDINGS[_wording(config, about)],
        answer=answer_spelling,
    )


def _debate(config: p.DebateConfig, about: About) -> Any:
    from coterie.measures import answer_spelling
    from coterie.protocols.debate import WORDINGS, Debate

    return Debate(
        copies=config.copies,
        rounds=config.rounds,
        deliver=config.deliver,
        vote=config.reward == "vote",
        final_tokens=config.final_tokens,
        wording=WORDINGS[_wording(config, about)],
        answer=answer_spelling,
    )


# credit


def _shaped(rule: CreditRule, config: p.CreditConfig) -> CreditRule:
    if not config.length_cost and not config.stop_bonus:
        return rule
    from coterie.credit.shaping import Shaped

    return Shaped(rule, config.length_cost, config.stop_bonus)


def _rule(path: str, name: str) -> Callable[[Any, About], CreditRule]:
    """A rule that is a function of the group alone, imported when it is first wanted."""

    def make(config: p.CreditConfig, about: About) -> CreditRule:
        import importlib

        return _shaped(plain(getattr(importlib.import_module(f"coterie.credit.{path}"), name)), config)

    return make


def _zero_notes(config: p.ZeroNotesConfig, about: About) -> CreditRule:
    from coterie.credit.zero_notes import ZeroNotes

    return _shaped(plain(ZeroNotes(left_out=config.notes == "left_out")), config)


def _leave_one_out(config: p.LeaveOneOutConfig, about: About) -> CreditRule:
    from coterie.credit.leave_one_out import LeaveOneOut

    return _shaped(LeaveOneOut(config.replays), config)


def _own_and_readers(config: p.OwnAndReadersConfig, about: About) -> CreditRule:
    from coterie.credit.own_and_readers import OwnAndReaders

    return _shaped(plain(OwnAndReaders(config.weight)), config)


# draws


def _fixed(config: p.FixedDrawConfig, about: About) -> Any:
    from coterie.draws.fixed import FixedDraw

    return FixedDraw(config.episodes)


def _reinforce_ada(config: p.ReinforceAdaConfig, about: About) -> Any:
    from coterie.draws.reinforce_ada import ReinforceAda

    return ReinforceAda(**config.model_dump(exclude={"kind"}))


def _dynamic(config: p.DynamicDrawConfig, about: About) -> Any:
    from coterie.draws.dynamic import DynamicDraw

    return DynamicDraw(config.episodes, config.rounds)


# casts


def _self_play(config: p.SelfPlayConfig, about: About) -> Any:
    from coterie.casts.self_play import SelfPlay

    return SelfPlay()


def _mixed_partners(config: p.MixedPartnersConfig, about: About) -> Any:
    from coterie.casts.mixed_partners import MixedPartners

    return MixedPartners(config.share, config.seats, config.alternate, config.partner)


def _pool(config: p.PoolConfig, about: About) -> Any:
    from coterie.casts.pool import Pool

    return Pool(
        share=config.share,
        takes=config.seats,
        members=config.partners,
        snapshot_every=config.snapshot_every,
        largest=config.largest,
        by_result=config.by == "result",
        seed=about.run.seed,
    )


_KINDS: tuple[tuple[Table, type[Config], Callable[[Any, About], Any]], ...] = (
    ("tasks", t.PocketTasksConfig, _pocket),
    ("tasks", t.GSM8KTasksConfig, _gsm8k),
    ("tasks", t.MathTasksConfig, _math),
    ("tasks", t.JsonlTasksConfig, _jsonl),
    ("tasks", t.ReasoningGymTasksConfig, _reasoning_gym),
    ("tasks", t.PocketSpecialtiesTasksConfig, _pocket_specialties),
    ("grading", t.NumericGraderConfig, _numeric),
    ("grading", t.ExactGraderConfig, _exact),
    ("grading", t.MathVerifyGraderConfig, _math_verify),
    ("grading", t.ReasoningGymGraderConfig, _reasoning_gym_grader),
    ("protocol", p.SoloConfig, _solo),
    ("protocol", p.TeamConfig, _team),
    ("protocol", p.ChatConfig, _chat),
    ("protocol", p.BoardConfig, _board),
    ("protocol", p.DebateConfig, _debate),
    ("credit", p.TeamMeanConfig, _rule("team_mean", "team_mean")),
    ("credit", p.ZeroNotesConfig, _zero_notes),
    ("credit", p.ReadersMeanConfig, _rule("readers_mean", "readers_mean")),
    ("credit", p.LeaveOneOutConfig, _leave_one_out),
    ("credit", p.OwnAndReadersConfig, _own_and_readers),
    ("credit", p.RaftConfig, _rule("raft", "raft")),
    ("credit", p.PerPartnerConfig, _rule("per_partner", "per_partner")),
    ("credit", p.PerRoleConfig, _rule("per_role", "per_role")),
    ("draw", p.FixedDrawConfig, _fixed),
    ("draw", p.ReinforceAdaConfig, _reinforce_ada),
    ("draw", p.DynamicDrawConfig, _dynamic),
    ("cast", p.SelfPlayConfig, _self_play),
    ("cast", p.MixedPartnersConfig, _mixed_partners),
    ("cast", p.PoolConfig, _pool),
)
for _table, _config, _factory in _KINDS:
    register(_table, _config, _factory, built_in=True)
