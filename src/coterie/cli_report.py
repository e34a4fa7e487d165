"""The command `coterie report`."""

from pathlib import Path
from typing import Annotated

from rich.console import Console

from coterie.cli_options import Flag, Plugins
from coterie.types import CoterieError

console = Console(highlight=False)


def report(
    folder: Path,
    /,
    *,
    out: Path | None = None,
    figures: Path | None = None,
    watch: Annotated[bool, Flag] = False,
    port: int = 8765,
    recipe: str | None = None,
    plugin: Plugins = (),
) -> None:
    """Write one HTML file about a folder of runs: verdicts, figures with every seed, cost, checks, conversations.

    It needs no network and opens from disk.

    Parameters
    ----------
    folder
        A folder of run folders (runs/talk-to-solve) or of committed records (recipes/talk-to-solve/results/MODEL).
    out
        The file to write; FOLDER/report.html when absent. A report of before is replaced, no other file is.
    figures
        Also write each figure as SVG and PNG into this folder, and the tables as Markdown.
    watch
        Serve the page on this machine instead (127.0.0.1), made anew while runs go on, until Ctrl-C.
    port
        The port of --watch; 0 is any free one.
    recipe
        As in `coterie compare`.
    plugin
        As in `coterie compare`.
    """
    from coterie.report.html.source import read
    from coterie.report.html.write import render, write_figures, write_page

    if watch:
        if out or figures:
            raise CoterieError("--watch writes no file; leave out --out and --figures")
        return _watch(folder, port, recipe, plugin)
    target = out or folder / "report.html"
    source = read(folder, recipe, plugin)
    write_page(render(source), target)
    if figures:
        written = write_figures(source, figures)
        console.print(f"{len(written)} files of figures and tables are in {figures}", markup=False, soft_wrap=True)
    console.print(f"report: {target}", markup=False, soft_wrap=True)
    return None


def _watch(folder: Path, port: int, recipe: str | None, plugin: tuple[Path, ...]) -> None:
    from coterie.report.html import source as records
    from coterie.report.html.watch import HOST, Pages, serve
    from coterie.report.html.write import render

    pages = Pages(lambda: records.stamp(folder), lambda now: render(records.read(folder, recipe, plugin), stamp=now))
    pages.page()  # what is wrong with the folder is said here, not in the browser
    try:
        server = serve(pages, port)
    except (OSError, OverflowError):
        raise CoterieError(f"--port {port}: cannot be used; another program may have it, choose another") from None
    console.print(f"http://{HOST}:{server.server_port}/ shows {folder}; Ctrl-C ends it", markup=False, soft_wrap=True)
    with server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            console.print("ended")
