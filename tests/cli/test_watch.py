"""`fedincentive watch`: a page in a real browser follows a real run, and tells nobody else anything."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import sqlite3
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import command

from fedincentive import engine, ledger
from fedincentive.center import Center
from fedincentive.cli.watch import Page
from fedincentive.game import Game, random_data_value
from fedincentive.reports.live import Follower
from fedincentive.settings import Settings

ROGUE = "<img src=x onerror=alert(1)>"
ROUNDS = 6


def rounds(folder: Path, game: Game, **settings: object) -> Iterator[Center]:
    """A real run in a host's kind of folder: the center after each round that closed."""
    values = {"mechanism": "2p-upbred", "rounds": ROUNDS, "currency": "EUR", "run": "trial", **settings}
    (folder / "state").mkdir(parents=True)
    with ledger.open(folder / "ledger.sqlite") as book:
        center, agents = engine.table(game, Settings.read(values), ledger=book, state=folder / "state")
        with center:
            while not center.done:
                for report in engine.answers(center.broadcast(), agents):
                    center.submit(report)
                center.close()
                yield center
            center.conclude(game)


def looked(target: Path | str, run: str | None = None) -> dict:
    follower = Follower(str(target), run)
    follower.look()
    return follower.now


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "trial"
    list(rounds(folder, random_data_value(5, 4)))
    return folder


@pytest.fixture
def browser(chromium):
    """`browser(address, says)`: the page's text as a reader sees it on a phone once it says that, and the markup."""

    def show(address: str, says: str) -> tuple[str, str]:
        chromium.open(address, 390)
        chromium.until(f"document.body.innerText.includes({json.dumps(says)})")
        return chromium.text(), chromium.ask("document.body.innerHTML").split("<script>")[0]

    return show


def test_the_page_follows_a_run_while_it_goes_on(browser, tmp_path: Path) -> None:
    game = random_data_value(5, 4)
    run = rounds(tmp_path / "runs" / "trial", game, gamma=2.0)
    with Follower(str(tmp_path / "runs")) as follower, Page("127.0.0.1", 0, follower) as page:
        threading.Thread(target=page.serve_forever, daemon=True).start()
        browser(page.address, "There is nothing at")
        first = next(center for center in run if center.run.contributed >= 3)
        text, _ = browser(page.address, f"{first.run.contributed} rounds, at most")
        assert "trial (2p-upbred)" in text and "running" in text and "Agents settle how much they give" in text
        middle = next(center for center in run if center.run.trained >= 3)
        text, _ = browser(page.address, f"{middle.run.trained} of {ROUNDS} rounds")
        assert "settled" in text
        assert re.search(r"\d+ entries verified", text)
        list(run)
        text, markup = browser(page.address, "complete")
        page.shutdown()
    assert f"{ROUNDS} of {ROUNDS} rounds" in text and "in EUR" in text
    with ledger.read(tmp_path / "runs" / "trial" / "ledger.sqlite") as book:
        balances = book.balances()
    for agent, balance in balances.items():
        assert re.search(rf"{agent} .*? {re.escape(f'{balance / 10**6:.2f}')}", text), (agent, balance, text)
    assert markup.count("<polyline") == 2  # contribution and welfare
    assert "No answer" not in text


def test_a_page_that_is_open_moves_with_the_run(browser, chromium, tmp_path: Path) -> None:
    """One page, opened once, shows later rounds than those at which it was opened."""
    folder, asked = tmp_path / "trial", list[int]()
    run = rounds(folder, random_data_value(5, 4), gamma=2.0)
    next(run)

    class Moving(Follower):
        @property
        def now(self) -> dict:  # type: ignore[override]
            next(run, None)
            self.look()
            asked.append(self._last["contributed"])
            return self._last

        @now.setter
        def now(self, value: dict) -> None:
            self._last = value

    follower = Moving(str(folder))
    with Page("127.0.0.1", 0, follower) as page:
        threading.Thread(target=page.serve_forever, daemon=True).start()
        browser(page.address, "rounds, at most")
        later = asked[0] + 2
        chromium.until(f"parseInt(document.getElementById('first-words').textContent) >= {later}")
        assert "No answer" not in chromium.text()
        page.shutdown()
    chromium.until("!document.getElementById('lost').hidden")  # and says so when nobody answers any more
    assert "No answer from the program" in chromium.text() and f"{asked[-1]} rounds, at most" in chromium.text()


def test_who_stays_away_is_named_while_the_run_goes_on(tmp_path: Path) -> None:
    """Also where nothing is signed, so that no entry lists who was absent."""
    game = random_data_value(5, 4)
    values = {"mechanism": "2p-upbred", "rounds": 5, "quorum": 0.5}
    (tmp_path / "state").mkdir()
    with ledger.open(tmp_path / "ledger.sqlite") as book:
        center, agents = engine.table(game, Settings.read(values), ledger=book, state=tmp_path / "state")
        away = game.agents[0]
        with center:
            while center.run.trained < 3:
                late = center.run.trained >= 1
                for report in engine.answers(center.broadcast(), agents):
                    if not (late and report.agent == away):
                        center.submit(report)
                center.close()
            rows = {row["name"]: row for row in looked(tmp_path)["agents"]}
    assert rows[away]["notes"] == ["gave nothing in the last 2 training rounds"] and rows[away]["gives"] == 0.0
    assert not [row["notes"] for name, row in rows.items() if name != away and row["notes"]]
    by_ledger = {row["name"]: row for row in looked(tmp_path / "ledger.sqlite")["agents"]}
    assert by_ledger[away]["notes"] == rows[away]["notes"]


def ask(address: str, host: str | None = None, method: str = "GET") -> int:
    request = urllib.request.Request(address, headers={"Host": host} if host else {}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_nobody_reads_it_without_the_token_or_through_another_name(finished: Path) -> None:
    with Follower(str(finished)) as follower, Page("127.0.0.1", 0, follower) as page:
        threading.Thread(target=page.serve_forever, daemon=True).start()
        base, _, token = page.address.partition("/?")
        assert ask(page.address) == ask(f"{base}/now?{token}") == 200
        assert ask(f"{base}/now?{token}", "localhost:1") == 200
        assert ask(base) == ask(f"{base}/now") == ask(f"{base}/now?token=x") == ask(f"{base}/?token=%ff") == 403
        assert ask(page.address, "attacker.example") == ask(page.address, "127.0.0.1.attacker.example") == 403
        assert ask(f"{base}/../../etc/passwd?{token}") == ask(f"{base}/state.json?{token}") == 404
        assert ask(page.address, method="POST") == ask(page.address, method="DELETE") == 501
        with urllib.request.urlopen(page.address, timeout=20) as answer:
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", answer.read().decode())
        page.shutdown()


def test_no_secret_of_the_state_leaves_it(finished: Path) -> None:
    state = json.loads((finished / "state" / "state.json").read_text())
    shown = json.dumps(looked(finished))
    assert state["run"]["audit_seed"] and str(state["run"]["audit_seed"]) not in shown


def test_names_are_never_markup(browser, finished: Path, tmp_path: Path) -> None:
    with Follower(str(finished)) as follower, Page("127.0.0.1", 0, follower) as page:
        follower._stop.set()
        follower._thread.join()
        agents = [{**agent, "name": ROGUE, "notes": [ROGUE]} for agent in follower.now["agents"]]
        follower.now = {**follower.now, "agents": agents, "run": ROGUE, "warnings": [ROGUE]}
        threading.Thread(target=page.serve_forever, daemon=True).start()
        text, markup = browser(page.address, ROGUE)
        page.shutdown()
    assert "<img" not in markup and markup.count("&lt;img src=x onerror=alert(1)&gt;") >= 2 + 2 * len(agents)


def test_the_ledger_alone_tells_what_it_can(finished: Path, tmp_path: Path) -> None:
    whole = looked(finished)
    shutil.copy(finished / "ledger.sqlite", tmp_path / "book.db")
    alone = looked(tmp_path / "book.db")
    assert (alone["run"], alone["mechanism"], alone["status"]) == ("trial", "2p-upbred", "complete")
    assert (alone["trained"], alone["rounds"], alone["currency"]) == (ROUNDS, ROUNDS, "EUR")
    assert [agent["money"] for agent in alone["agents"]] == [agent["money"] for agent in whole["agents"]]
    assert alone["ledger"] == whole["ledger"] and whole["ledger"]["clean"]


def test_a_changed_ledger_is_said_first(finished: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(finished, tmp_path / "trial")
    with sqlite3.connect(folder / "ledger.sqlite") as file:
        for (trigger,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            file.execute(f"DROP TRIGGER {trigger}")
        file.execute("UPDATE postings SET amount = amount + 1000000 WHERE amount > 0")
    now = looked(folder)
    assert not now["ledger"]["clean"] and now["ledger"]["findings"]
    assert now["warnings"][0].startswith("The ledger does not verify")


def test_a_damaged_state_is_said_and_the_rest_goes_on(finished: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(finished, tmp_path / "trial")
    follower = Follower(str(folder))
    follower.look()
    (folder / "state" / "state.json").write_text('{"run": 1}')
    follower.look()
    assert "state.json is damaged" in follower.now["trouble"] and follower.now["run"] == "trial"


def test_which_run_of_a_ledger_is_shown(tmp_path: Path) -> None:
    for name in ("first", "second"):
        engine.play(random_data_value(5, 3), mechanism="2p-upbred", run=name, rounds=2, ledger=tmp_path / "l.db")
    for given, name in ((["--run", "first"], "first"), ([], "second")):
        done = command("watch", tmp_path / "l.db", "--json", *given)
        assert json.loads(done.output)["run"] == name
    waiting = json.loads(command("watch", tmp_path / "l.db", "--json", "--run", "third").output)["waiting"]
    assert "'third'" in waiting


def test_a_port_that_is_taken_is_said(finished: Path) -> None:
    with Page("127.0.0.1", 0, Follower(str(finished))) as page:
        done = command("watch", finished, "--port", page.server_address[1])
    assert done.exit_code == 1 and "Choose another --host or --port." in done.output


def test_where_nothing_is_yet_the_page_waits_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Page, "serve_forever", lambda page: None)  # as if Ctrl-C came at once
    assert "There is nothing at " in command("watch", tmp_path / "nope").output
    assert "There is nothing at " not in command("watch", tmp_path).output


@pytest.mark.parametrize(
    "line",
    [b"GET http://[ HTTP/1.1\r\nHost: localhost", b"GET / HTTP/1.1\r\nHost: [::1", b"\0\xff\xfe", b"G" * 200_000],
)
def test_a_request_that_is_none_leaves_no_traceback(line: bytes, finished: Path, capfd) -> None:
    """Anyone on the machine can send one, without a token."""
    with Follower(str(finished)) as follower, Page("127.0.0.1", 0, follower) as page:
        threading.Thread(target=page.serve_forever, daemon=True).start()
        # the server may hang up on a line that is too long
        with contextlib.suppress(OSError), socket.create_connection(page.server_address[:2], 30) as asks:
            asks.sendall(line + b"\r\n\r\n")
            asks.shutdown(socket.SHUT_WR)
            answer = asks.recv(1000)
            assert answer and b"200" not in answer.split(b"\r\n")[0]
        with urllib.request.urlopen(page.address) as found:
            assert found.status == 200
        page.shutdown()
    assert "Traceback" not in capfd.readouterr().err


def test_a_run_that_was_refused_does_not_hide_the_one_before(finished: Path, tmp_path: Path) -> None:
    """A host opens the ledger before it refuses a run: what that leaves is newer, and nothing happens in it."""
    shutil.copytree(finished, tmp_path / "runs" / "trial")
    (tmp_path / "runs" / "refused").mkdir()
    with ledger.open(tmp_path / "runs" / "refused" / "ledger.sqlite"):
        pass
    assert looked(tmp_path / "runs")["run"] == "trial"


@pytest.mark.parametrize(("currency", "digits"), [("JPY", r"-?[\d,]+"), ("BHD", r"-?[\d,]+\.\d{3}")])
def test_money_has_the_digits_of_its_currency(currency: str, digits: str, tmp_path: Path) -> None:
    list(rounds(tmp_path / "trial", random_data_value(5, 4), currency=currency))
    for target in (tmp_path / "trial", tmp_path / "trial" / "ledger.sqlite"):
        now = looked(target)
        assert now["agents"] and all(re.fullmatch(digits, agent["money"]) for agent in now["agents"])
        assert re.fullmatch(digits, now["welfare"]) or not now["welfare"]
