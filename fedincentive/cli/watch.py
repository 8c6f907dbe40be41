"""`fedincentive watch RUN|LEDGER`: a page that follows a run while it goes on."""

from __future__ import annotations

import hmac
import ipaddress
import json
import secrets
import sys
import webbrowser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import click

from ..reports.live import Follower
from ..reports.page import STYLE

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Page(ThreadingHTTPServer):
    """Serves one page and what it shows; whoever asks must know the token."""

    daemon_threads = True

    def __init__(self, host: str, port: int, follower: Follower) -> None:
        self.follower, self.token = follower, secrets.token_urlsafe(16)
        self.html = resources.files("fedincentive.reports").joinpath("watch.html").read_text("utf-8")
        super().__init__((host, port), Handler)

    @property
    def address(self) -> str:
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}/?token={self.token}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that went away in the middle is none."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    server: Page
    server_version, sys_version = "fedincentive", ""

    def do_GET(self) -> None:
        try:
            asked = urlsplit(self.path)
        except ValueError:
            self._answer(400, "text/plain", "This is no address of a page.")
            return
        token = parse_qs(asked.query).get("token", [""])[0]
        if not _is_direct(self.headers.get("Host", "")):
            self._answer(403, "text/plain", "Open this page by the address that `fedincentive watch` printed.")
        elif not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self._answer(403, "text/plain", "The token is wrong: use the address that `fedincentive watch` printed.")
        elif asked.path == "/":
            self._answer(200, "text/html", self.server.html.replace("/*STYLE*/", STYLE))
        elif asked.path == "/now":
            self._answer(200, "application/json", json.dumps(self.server.follower.now))
        else:
            self._answer(404, "text/plain", "There is nothing here.")

    def _answer(self, code: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(code)
        for name, value in {**HEADERS, "Content-Type": f"{kind}; charset=utf-8"}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the request line holds the token."""


def _is_direct(host: str) -> bool:
    """Whether the page was asked for by number or as localhost: a name on the web may be made to point here."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or bool(ipaddress.ip_address(name))
    except ValueError:
        return False


@click.command()
@click.argument("target", metavar="RUN|LEDGER")
@click.option("--run", metavar="NAME", help="Which run of a ledger that holds several; the newest by default.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to serve; others can reach 0.0.0.0.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="A free one by default.")
@click.option("--open", "browser", is_flag=True, help="Open the page in a browser.")
@click.option("--json", "as_json", is_flag=True, help="Print what the page would show now, and end.")
def watch(target: str, run: str | None, host: str, port: int, browser: bool, as_json: bool) -> None:
    """Follow a running or finished federation on a local page: progress, contributions, balances, warnings.

    RUN is a run's folder, or a folder of runs, of which the newest is shown; LEDGER a file or a postgresql:// address.
    The page asks nobody but this program, which reads the run's files and writes nothing. The address holds a token;
    whoever has it can read the page while this command runs. Ctrl-C ends it.
    """
    follower = Follower(target, run)
    if as_json:
        follower.look()
        click.echo(json.dumps(follower.now, indent=2))
        return
    try:
        page = Page(host, port, follower)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise click.ClickException(f"Cannot serve at {host}:{port}: {why}. Choose another --host or --port.") from error
    with follower, page:
        click.echo(f"{page.address}\nCtrl-C ends it.")
        if "://" not in target and not Path(target).exists():
            click.echo(f"There is nothing at {target} yet: the page waits for a run to begin there.", err=True)
        if browser:
            webbrowser.open(page.address)
        try:
            page.serve_forever()
        except KeyboardInterrupt:
            click.echo()
