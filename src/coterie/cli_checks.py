"""The command `coterie check`."""

import json as jsonlib
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.table import Table
from rich.text import Text

from coterie.cli_options import Flag

STYLES = {"fault": "bold red", "note": "yellow", "ok": "green", "unknown": "dim"}
"""Colour never stands alone: the word is always printed."""

console = Console(highlight=False)


def check(folder: Path, /, *, json: Annotated[bool, Flag] = False, strict: Annotated[bool, Flag] = False) -> int:
    """Look for what can be wrong with finished runs: overlap, noise, cut or looping messages, lost boxes, chance use of the talk.

    Parameters
    ----------
    folder
        A folder of run folders (runs/talk-to-solve), of committed records, or one run folder.
    json
        Print JSON: by run, the name of each check, its status and its sentence.
    strict
        Exit with 1 when a check is a fault.
    """
    from coterie.checks import as_json, check_folder, faults

    runs = check_folder(folder)
    found, of = faults(as_json(runs))
    if json:
        print(jsonlib.dumps(as_json(runs), indent=2, ensure_ascii=False))
    else:
        for run, checks in runs.items():
            table = Table(title=Text(run, "bold"), title_justify="left", box=None, pad_edge=False, show_header=False)
            for one in checks:
                table.add_row(one.name, Text(one.status, STYLES[one.status]), Text(one.said))
            console.print(table, "")
        console.print(f"{found} fault{'s' * (found != 1)}, in {of} of {len(runs)} runs", markup=False)
    return 1 if strict and found else 0
