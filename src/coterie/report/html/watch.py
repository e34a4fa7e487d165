"""`coterie report --watch`: the page on this machine's own address, made anew when a record has changed."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from coterie.types import CoterieError

HOST = "127.0.0.1"
"""Only this machine may ask: conversations and settings are nobody else's business."""


class Pages:
    """The page of the records as they are. `stamp` tells whether they changed; `make` makes the page of a stamp."""

    def __init__(self, stamp: Callable[[], str], make: Callable[[str], str]):
        self._stamp, self._make = stamp, make
        self._lock = threading.Lock()
        self._made: tuple[str, bytes] | None = None

    def stamp(self) -> str:
        return self._stamp()

    def page(self) -> bytes:
        """Made once for each state of the records, however many browsers ask. Records that cannot be read just now (half of them
        copied, one of them edited) leave the page as it was; raises CoterieError when there is none yet."""
        with self._lock:
            now = self._stamp()
            if self._made is None or self._made[0] != now:
                try:
                    self._made = (now, self._make(now).encode())
                except CoterieError:
                    if self._made is None:
                        raise
            return self._made[1]


def serve(pages: Pages, port: int) -> ThreadingHTTPServer:
    """A server that is ready to `serve_forever`; port 0 is any free one. Raises OSError when the port is taken."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self._local():
                self._answer(403, b"asked for under another name than this machine's own address", "text/plain")
            elif self.path == "/":
                self._answer(200, pages.page(), "text/html; charset=utf-8")
            elif self.path == "/stamp":
                self._answer(200, pages.stamp().encode(), "text/plain")
            else:
                self._answer(404, b"not here", "text/plain")

        def _local(self) -> bool:
            """A page of elsewhere whose name was made to point here (DNS rebinding) asks with its own name."""
            return self.headers.get("Host", "").rpartition(":")[0] in (HOST, "localhost")

        def _answer(self, code: int, body: bytes, kind: str) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """A poll every few seconds is no news."""

    return ThreadingHTTPServer((HOST, port), Handler)
