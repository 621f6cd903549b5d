"""A small server for one folder: its files as pages, and any two of them compared.

It listens on this machine only and answers only who knows the token in its address, so that other
users of the machine, and pages of other sites in the same browser, cannot read what is served.
"""

from __future__ import annotations

import hmac
import html
import os
import secrets
import time
import urllib.parse
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from treadle.core.errors import TreadleError, UsageError
from treadle.core.options import Options
from treadle.core.reading import read_text
from treadle.core.tables import human_bytes
from treadle.lab.files import kind_of
from treadle.lab.loading import load, program_of
from treadle.lab.reporting import REPORTED_BY, Wanted, report_of_file, title_of
from treadle.page.compare import compare
from treadle.page.html import asset, page

LOOPBACK = "127.0.0.1"
COMPARED = ("program", "reproducer", "inductor_dump")
LARGEST = 64 << 20
"""Larger files are not looked into."""
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; form-action 'self'"
)


class RunServer(ThreadingHTTPServer):
    """Serves the files of one folder to who knows the token."""

    daemon_threads = True

    def __init__(self, folder: str, port: int = 0) -> None:
        if not os.path.isdir(folder):
            raise UsageError(f"{folder} is no folder")
        self.folder = os.path.realpath(folder)
        self.token = secrets.token_urlsafe(18)
        try:
            super().__init__((LOOPBACK, port), PageHandler)
        except OSError as e:
            raise UsageError(f"cannot listen on port {port}: {e.strerror}") from e

    @property
    def address(self) -> str:
        """The address to open, token included."""
        return f"http://{LOOPBACK}:{self.server_port}/?token={self.token}"

    def runs(self) -> list[tuple[str, str, float, int]]:
        """(name, kind, time of change, bytes) of every file that has a page, newest first."""
        found = []
        for folder, inner, names in os.walk(self.folder):
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            for name in sorted(names):
                path = os.path.join(folder, name)
                kind = self._kind(path)
                if kind in REPORTED_BY:
                    state = os.stat(path)
                    shown = os.path.relpath(path, self.folder)
                    found.append((shown, kind, state.st_mtime, state.st_size))
        return sorted(found, key=lambda row: (-row[2], row[0]))

    def path_of(self, name: str) -> str:
        """The path of a file by the name in the list; anything else is refused."""
        path = os.path.realpath(os.path.join(self.folder, name))
        if os.path.commonpath([path, self.folder]) != self.folder or not os.path.isfile(path):
            raise UsageError(f"there is no file '{name}' in this folder")
        return path

    @staticmethod
    def _kind(path: str) -> str:
        try:
            if os.path.islink(path) or os.path.getsize(path) > LARGEST:
                return "unknown"
            return kind_of(read_text(path))
        except (OSError, TreadleError, ValueError):
            return "unknown"


class PageHandler(BaseHTTPRequestHandler):
    """Answers one request; everything but reading is refused."""

    server: RunServer
    server_version = "treadle"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer with the list, a page, or what is wrong."""
        parts = urllib.parse.urlsplit(self.path)
        words = dict(urllib.parse.parse_qsl(parts.query))
        host = self.headers.get("Host", "").rpartition(":")[0]
        # Another name for this machine is the trick of a page that wants to read across sites.
        if host not in (LOOPBACK, "localhost") or not self._knows(words.get("token", "")):
            self._answer(HTTPStatus.FORBIDDEN, _message("the address needs its token"))
            return
        try:
            self._answer(HTTPStatus.OK, self._page(parts.path, words))
        except TreadleError as e:
            self._answer(HTTPStatus.BAD_REQUEST, _message(e.render()))
        except KeyError as e:
            self._answer(HTTPStatus.BAD_REQUEST, _message(f"the address does not say {e}"))

    def _knows(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.server.token.encode())

    def _page(self, path: str, words: Mapping[str, str]) -> str:
        if path == "/":
            return self._list()
        if path == "/report":
            loaded = load(self.server.path_of(words["file"]))
            return page(report_of_file(loaded, Wanted(others=False)).data)
        if path == "/diff":
            sides = [load(self.server.path_of(words[side])) for side in "ab"]
            titles = (title_of(sides[0]), title_of(sides[1]))
            programs = [program_of(side) for side in sides]
            found = compare(programs[0], programs[1], "dump", titles, Options.from_env())
            return page(found)
        raise UsageError(f"there is no page {path}")

    def _list(self) -> str:
        token = self.server.token
        rows, compared = [], []
        for name, kind, changed, size in self.server.runs():
            shown = html.escape(name)
            link = html.escape(f"/report?{urllib.parse.urlencode({'token': token, 'file': name})}")
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(changed))
            rows.append(f"<tr><td><a href='{link}'>{shown}</a></td>"
                        f"<td>{html.escape(WORDS.get(kind, kind))}</td><td>{when}</td>"
                        f"<td class='n'>{human_bytes(size)}</td></tr>")  # fmt: skip
            if kind in COMPARED:
                compared.append(shown)
        # The two newest, the older one first: what changed last is what one wants to see.
        options = ["".join(f"<option{' selected' * (k == at)}>{one}</option>"
                           for k, one in enumerate(compared)) for at in (1, 0)]  # fmt: skip
        body = (
            "<h2>Files, newest first</h2><table><thead><tr><th>file</th><th>kind</th>"
            "<th>changed</th><th class='n'>size</th></tr></thead>"
            f"<tbody>{''.join(rows)}</tbody></table>"
            "<h2>Compare two schedules</h2><form action='/diff'>"
            f"<input type='hidden' name='token' value='{html.escape(token)}'>"
            f"<label>A <select name='a'>{options[0]}</select></label> "
            f"<label>B <select name='b'>{options[1]}</select></label> "
            "<button>compare</button></form>"
        )
        return _message_page(f"runs in {os.path.basename(self.server.folder)}", body, refresh=True)

    def _answer(self, status: HTTPStatus, text: str) -> None:
        content = text.encode("utf-8")
        self.send_response(status)
        for name, value in (
            ("Content-Type", "text/html; charset=utf-8"),
            ("Content-Length", str(len(content))),
            ("Content-Security-Policy", POLICY),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
            ("Cache-Control", "no-store"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the address in a log would hold the token."""


REFRESH = "<meta http-equiv='refresh' content='5'>"
RELOAD = (
    "let chosen = false; addEventListener('input', () => { chosen = true; });"
    " setInterval(() => { if (!chosen) location.reload(); }, 5000);"
)
"""The list renews itself, but not under the hands of who is choosing two files."""
WORDS = {
    "inductor_dump": "TorchInductor dump",
    "program": "Treadle program",
    "minimalloc_csv": "memory problem",
}


def _message(text: str) -> str:
    return _message_page("treadle", f"<pre>{html.escape(text)}</pre>")


def _message_page(title: str, body: str, refresh: bool = False) -> str:
    again = f"<noscript>{REFRESH}</noscript><script>{RELOAD}</script>" if refresh else ""
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'>{again}"
        f"<title>{html.escape(title)}</title><style>{asset('page.css')}</style></head>"
        f"<body><header><h1>{html.escape(title)}</h1></header><main>{body}</main></body></html>"
    )
