"""The process in which math-verify runs. Started by path, not as a module: it needs math-verify and the standard library only.

One JSON object a line in, `{"text", "gold", "seconds"}`; one out, `{"score"}` or `{"error"}`. The first line out is `{"ready"}`.
"""

import contextlib
import functools
import json
import os
import signal
import sys

MEMORY_BYTES = 4 * 2**30
"""An expression may ask for more memory than there is; the worker then reports an error in place of taking the machine down."""


@functools.lru_cache(maxsize=4096)
def parse_gold(gold: str) -> list:
    from math_verify import parse  # pyright: ignore[reportAttributeAccessIssue]  (not the sibling file)

    return parse(f"${gold}$", parsing_timeout=0)


def score(text: str, gold: str) -> float:
    """1.0 where math-verify finds the answer of `text` equal to `gold`, parsed with its defaults.

    Raises:
        Exception: what math-verify raises while it compares, where it would otherwise say "not equal" and hide it.
        ValueError: there is no expression in `gold`.
    """
    from math_verify import parse, verify  # pyright: ignore[reportAttributeAccessIssue]

    right = parse_gold(gold)
    if all(isinstance(part, str) for part in right):
        raise ValueError(f"the gold answer {gold[:60]!r} is no expression that math-verify can parse; use the grader exact")
    given = parse(text, parsing_timeout=0)
    if verify(right, given, timeout_seconds=None):
        return 1.0
    verify(right, given, timeout_seconds=None, raise_on_error=True)
    return 0.0


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; the parent decides when to stop
    with contextlib.suppress(ImportError, ValueError, OSError):  # not every system can limit it
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # nothing that a library prints can reach the answers

    import logging

    import math_verify  # noqa: F401  the slow import happens before "ready", outside any answer's time

    logging.disable(logging.CRITICAL)
    print(json.dumps({"ready": True}), file=answers)
    for line in sys.stdin:
        job = json.loads(line)
        # Should the parent die while this hangs, the default action of SIGALRM ends this process, and this process only.
        signal.setitimer(signal.ITIMER_REAL, job["seconds"] + 5)
        try:
            reply = {"score": score(job["text"], job["gold"])}
        except BaseException as error:
            reply = {
                "error": str(error) if type(error) is ValueError else f"math-verify raised {type(error).__name__}: {error}"[:300]
            }
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps(reply), file=answers)


if __name__ == "__main__":
    main()
