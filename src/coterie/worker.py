"""Plays one run from its folder, start to finish. `python -m coterie.worker` serves a launcher: folders in, outcomes out."""

import json
import os
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

from coterie.config import RunConfig
from coterie.kinds import load_entry_points
from coterie.records import write_text
from coterie.runs import RunFolder, end_with, machine, versions
from coterie.types import CoterieError


def play_run(folder: RunFolder) -> None:
    """Train the run (from its last checkpoint where there is one), score it on the held-out tasks and write `result.json`.

    A run whose `train.steps` is 0 scores the untrained model. A finished run is left as it is.
    """
    if folder.finished:
        return
    config = folder.config()
    with folder.locked():
        from coterie.loading import be_quiet

        be_quiet()
        folder.set_state(status="loading", versions=versions(), machine=machine(), pid=os.getpid())
        try:
            (_play_swarm if config.swarm else _play_one)(folder, config)
        except BaseException:
            folder.set_state(status="failed")  # else whoever watches takes it for a run that still goes on
            raise


def _play_one(folder: RunFolder, config: RunConfig) -> None:
    from coterie.assemble import assemble
    from coterie.scoring import finish, record_of
    from coterie.train import train

    stage = assemble(config)
    folder.set_state(status="training")
    train(stage, folder)
    folder.set_state(status="evaluating")
    finish(folder, *record_of(stage, folder))


def _play_swarm(folder: RunFolder, config: RunConfig) -> None:
    from coterie.scoring import finish
    from coterie.swarm.ensemble import play_swarm

    finish(folder, *play_swarm(folder, config))


def serve() -> None:
    """Read run folders from standard input, one a line, play each, and answer with one JSON line each: ok, or the error.

    The answers have standard output to themselves: whatever else a library prints there goes to standard error.
    """
    import gc
    import warnings

    import torch

    warnings.simplefilter("ignore")  # of the libraries; what coterie has to say goes into the run's files
    threads = os.environ.get("COTERIE_THREADS")
    if threads:
        torch.set_num_threads(int(threads))
    load_entry_points()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    for line in sys.stdin:
        folder = RunFolder(Path(line.rstrip("\n")))
        outcome: dict[str, Any] = {"folder": str(folder.path), "error": None, "kind": None}
        try:
            play_run(folder)
        except CoterieError as error:
            outcome.update(error=str(error), kind="user")
        except Exception as error:
            log = folder.path / "error.txt"
            write_text(log, traceback.format_exc())
            outcome.update(error=f"{type(error).__name__}: {error} (all of it is in {log})", kind="crash")
        print(json.dumps(outcome), file=answers, flush=True)
        gc.collect()  # model and engine refer to each other; on a GPU the next run needs their memory
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


if __name__ == "__main__":
    serve()
