"""Checks of the terms on which a run was scored: its tasks, its sampler, its grader."""

from coterie.checks.base import Evidence, Finding

TEMPLATES = 0.05
"""A held-out share of known templates from here on is worth a note: the least effect that recipes ask about by default is as large,
so knowing these tasks by their form could make all of it."""

GRADING_ERRORS = 0.01
"""Failed grades an episode that are a fault. Episodes with one leave the mean, and where failing depends on the answer (long ones
time out) the mean is of the easier ones: at one per cent that can move a score by a point."""


def overlap(evidence: Evidence) -> Finding:
    """Held-out questions and templates that training had."""
    found = evidence.record.get("overlap")
    if found is None:
        return "unknown", "the record holds no overlap of train and held-out tasks; it is of an older version"
    if found["questions"]:
        return "fault", (
            f"{found['questions']} held-out tasks ask a question of the train tasks; remove them from one of the two and run again"
        )
    if found["templates"] is None:
        return "unknown", "there are no held-out tasks to compare with the train tasks"
    said = f"no held-out question is a train question; {found['templates']:.0%} have the template of one (other numbers and names)"
    if found["templates"] > TEMPLATES:
        return "note", f"{said}, so the score says nothing about new kinds of problem"
    return "ok", said


def sampler(evidence: Evidence) -> Finding:
    """Training, evaluation and the evaluation of the untrained model sample alike."""
    sampling = evidence.record.get("sampling")
    if not sampling:
        return "unknown", "the record does not say how messages were sampled"
    training, evaluation = sampling["train"], sampling["evaluate"]
    before = ((evidence.before or {}).get("sampling") or {}).get("evaluate", evaluation)
    if before != evaluation:
        return "fault", (
            f"the untrained model was scored with {_settings(before)}, the trained one with {_settings(evaluation)}, so the "
            "difference is also the sampler's; score both alike"
        )
    plain = {"temperature": training["temperature"], "top_p": 1.0, "top_k": 0}
    if {**plain, **evaluation} == plain:
        return "ok", f"training and evaluation sample at temperature {training['temperature']:g}, from all tokens"
    said = f"evaluation samples with {_settings(evaluation)}, training at temperature {training['temperature']:g} from all tokens"
    chosen = ((evidence.record.get("conditions") or {}).get("evaluate") or {}).get("sampling")
    if chosen is None:
        return "fault", f"{said}, and no setting asked for it; set evaluate.sampling to what is wanted and run again"
    return "note", f"{said}, as evaluate.sampling says: a gain may be one in sharpness, which a greedy sampler does not see"


def grading(evidence: Evidence) -> Finding:
    """Answers whose grade failed, in the held-out episodes and in training."""
    record, metrics = evidence.record, evidence.metrics
    if "grading_errors" not in record and not metrics:
        return "unknown", "neither a record nor metrics are there to count failed grades in"
    held_out, episodes = record.get("grading_errors") or 0, record.get("episodes") or 0
    training, drawn = (sum(step.get(key) or 0 for step in metrics) for key in ("grading_errors", "episodes"))
    said = f"grading failed {held_out:g} times in {episodes:g} held-out episodes"
    said += f", {training:g} times in {drawn:g} of training" if metrics else "; there are no metrics of training"
    ungraded = record.get("ungraded_tasks") or 0
    blank = sum("reward" in step and step["reward"] is None for step in metrics)
    if ungraded or blank or max(_share(held_out, episodes), _share(training, drawn)) > GRADING_ERRORS:
        more = f"; {ungraded:g} held-out tasks have no grade at all" if ungraded else ""
        more += f"; {blank} steps have no reward at all" if blank else ""
        return "fault", f"{said}{more}; read the errors in evaluation.jsonl and episodes.jsonl, mend the grader and run again"
    return ("note" if held_out or training else "ok"), said


def _settings(sampling: object) -> str:
    return ", ".join(f"{key} {value:g}" for key, value in sampling.items()) if isinstance(sampling, dict) else str(sampling)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else float(part > 0)
