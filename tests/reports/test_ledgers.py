"""The report on ledgers: it says what they say, takes nothing from one that does not verify, and runs no markup."""

from __future__ import annotations

import html
import json
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from commands import command
from entries import settlement, tranche
from keyring import folder_of

from fedincentive import engine, ledger
from fedincentive.errors import RunError
from fedincentive.ledger.export import decimal
from fedincentive.ledger.verify import verify
from fedincentive.reports import ledgers
from fedincentive.reports.page import text

GAME = Path(__file__).parents[2] / "examples" / "games" / "hospitals.yaml"
MECHANISMS = ("upbred", "2p-upbred", "t-upbred")
ROGUE = "<script>alert(1)</script>"
AGENTS = ("ann", "bob & co", ROGUE)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The ledgers of three mechanisms on one game, with their manifests beside them."""
    folder = tmp_path_factory.mktemp("played")
    for mechanism in MECHANISMS:
        done = command("play", GAME, "--mechanism", mechanism, "--ledger", folder / f"{mechanism}.db")
        assert done.exit_code == 0, done.output
    return [folder / f"{mechanism}.db" for mechanism in MECHANISMS]


@pytest.fixture
def copied(played: list[Path], tmp_path: Path) -> list[Path]:
    """The same, to be tampered with."""
    shutil.copytree(played[0].parent, tmp_path / "copied")
    return [tmp_path / "copied" / path.name for path in played]


def rogue(path: Path, minor: int = 10**6, size: int = 1) -> Path:
    """A ledger with a dangerous name in it, and nothing beside it."""
    s = {agent: size * 10**6 * (k + 3) ** 2 for k, agent in enumerate(AGENTS)}
    with ledger.open(path, minor=minor) as book:
        inputs = {"beta": "1/7", "s": s, "s_max": s, "scale": 10**6}
        book.append(ledger.Entry("run <b>", 4, "commitment", "commitment/1", inputs, {}))
        total, posted = dict.fromkeys(s, 0), dict.fromkeys(s, 0)
        for step in range(4, 7):
            total = {agent: total[agent] + s[agent] for agent in s}
            terms = {"beta": "1/7", "rounds": 3, "delivered": s, "total": total, "posted": posted, "minor": minor}
            entry = tranche("run <b>", step, **terms)
            posted = {agent: posted[agent] + entry.postings[agent] for agent in s}
            book.append(entry)
    return path


def written(tmp_path: Path, *targets: Path, code: int = 0) -> str:
    out = tmp_path / "report.html"
    done = command("report", "--out", out, *targets)
    assert done.exit_code == code, done.output
    assert done.stdout.splitlines()[0] == str(out)
    return out.read_text()


def cells(page: str, first: str) -> Iterator[list[str]]:
    """The rows of all tables whose first cell is `first`, as a reader sees them."""
    for row in re.findall(r"<tr>(.*?)</tr>", page):
        found = [html.unescape(cell) for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row)]
        if found[0] == first:
            yield found


def test_every_account_is_as_in_the_ledger(played: list[Path], tmp_path: Path) -> None:
    page = written(tmp_path, played[1])
    with ledger.read(played[1]) as book:
        balances, head, minor = book.balances(), book.head(), book.minor
        entries = list(book.entries())
    outcome = json.loads(Path(f"{played[1]}.runs/run/manifest.json").read_text())["outcome"]
    assert any(balances.values()) and sum(balances.values()) == 0
    for agent, balance in balances.items():
        row, exact = cells(page, agent)
        amounts = [entry.postings[agent] for entry in entries if agent in entry.postings]
        paid = -sum(amount for amount in amounts if amount < 0)
        received = sum(amount for amount in amounts if amount > 0)
        assert row[1:4] == [f"{outcome[of][agent]:g}" for of in ("s0", "s", "s_max")]
        assert row[4:7] == [f"{amount / minor:.2f}" for amount in (paid, received, balance)]
        assert exact[1:] == [decimal(amount, minor) for amount in (paid, received, balance)]
        assert f">{abs(balance) / minor:.2f}</text>" in page  # beside its band
    (total,) = cells(page, "all")
    assert total[6] == "0.00"
    assert str(head) in page and "1 ledger verified." in page
    assert next(cells(page, "postings"))[1] == str(sum(len(entry.postings) for entry in entries))
    for entry in entries:
        moved = decimal(sum(amount for amount in entry.postings.values() if amount > 0), minor)
        row = [str(entry.round), entry.kind, str(len(entry.postings)), moved, "0.000000"]
        assert entry.kind == "commitment" or row[3:] in [found[3:] for found in cells(page, str(entry.round))]
    assert "&quot;mechanism&quot;: &quot;2p-upbred&quot;" in page  # its settings


def test_mechanisms_are_compared(played: list[Path], tmp_path: Path) -> None:
    page = written(tmp_path, *played)
    for path, mechanism in zip(played, MECHANISMS, strict=True):
        manifest = json.loads(Path(f"{path}.runs/run/manifest.json").read_text())
        with ledger.read(path) as book:
            received = sum(balance for agent, balance in book.balances().items() if balance > 0 and agent != "treasury")
            treasury = book.balances().get("treasury", 0)
        (row,) = cells(page, f"run ({mechanism})")
        welfare = sum(round(value * 10**6) for value in manifest["outcome"]["valuations"].values())
        given = sum(manifest["outcome"]["s"].values())
        assert float(row[1]) == pytest.approx(given, abs=0.005)
        assert row[2] == f"{given / sum(manifest['outcome']['s_max'].values()):.0%}"
        assert row[3] == f"{welfare / 10**6:,.2f}"
        assert row[6:] == [f"{received / 10**6:.2f}", f"{treasury / 10**6:.2f}"]
        assert treasury == 0 or mechanism == "t-upbred"
    assert "Welfare over the rounds" in page and "Contribution over the rounds" in page


def test_costs_are_subtracted_exactly(copied: list[Path], tmp_path: Path) -> None:
    path = Path(f"{copied[1]}.runs/run/manifest.json")
    manifest = json.loads(path.read_text())
    agents = sorted(manifest["outcome"]["s"])
    for told in manifest["agents"].values():
        del told["cost"]  # as in a real federation, where no game says what data cost
    manifest["settings"]["cost"] = {agent: round(0.1 * (k + 1), 1) for k, agent in enumerate(agents)}
    manifest["outcome"]["s"] = dict.fromkeys(agents, 3.0)
    path.write_text(json.dumps(manifest))
    page = written(tmp_path, *copied[:2])
    (row,) = cells(page, "run (2p-upbred)")
    welfare = sum(round(value * 10**6) for value in manifest["outcome"]["valuations"].values())
    cost = sum(300_000 * (k + 1) for k in range(len(agents)))  # 3 points at 0.1, 0.2, ...
    assert row[3:6] == [f"{amount / 10**6:.2f}" for amount in (welfare, cost, welfare - cost)]
    _, _, row, _ = cells(page, agents[1])
    with ledger.read(copied[1]) as book:
        balance = book.balances()[agents[1]]
    value = round(manifest["outcome"]["valuations"][agents[1]] * 10**6)
    assert row[7:10] == [f"{a / 10**6:.2f}" for a in (value, 600_000, value - 600_000 + balance)]


def test_amounts_beyond_floats_are_exact(tmp_path: Path) -> None:
    """At 10**15 minor units per unit of money a float would lose the last digits."""
    path = rogue(tmp_path / "fine.db", minor=10**15, size=1003)
    page = written(tmp_path, path)
    with ledger.read(path) as book:
        balances = book.balances()
    for agent, balance in balances.items():
        assert list(cells(page, agent))[1][3] == decimal(balance, 10**15)
    assert any(int(float(balance)) != balance for balance in balances.values())


def test_names_are_never_markup(tmp_path: Path) -> None:
    page = written(tmp_path, rogue(tmp_path / "<i>ledger.db"))
    assert not re.search(r"<script|<b>|<i>|<iframe|@import|url\(", page)
    assert text(ROGUE) in page and "run &lt;b&gt;" in page and "&lt;i&gt;ledger.db" in page
    assert next(cells(page, ROGUE))[6] == next(cells(page, ROGUE))[5] != "0.00"
    for address in re.findall(r'(?:src|href)="([^"]*)"', page):
        assert address.startswith("data:")


def tamper(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as database:
        triggers = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            database.execute(f'DROP TRIGGER "{name}"')
        database.execute(statement)
        for _, sql in triggers:
            database.execute(sql)
    database.close()


def test_a_changed_ledger_is_named_at_the_top(copied: list[Path], tmp_path: Path) -> None:
    tamper(copied[1], "UPDATE entries SET body = replace(body, '\"city\":', '\"City\":') WHERE seq = 3")
    page = written(tmp_path, *copied, code=1)
    top = page[page.index("</header>") : page.index("<main>")]
    assert "1 of 3 ledgers does NOT verify" in top and "chain: entry 3" in top and "2p-upbred.db" in top
    assert 'class="verdict"' not in page and "ledgers verified" not in page
    assert [*cells(page, "run (upbred)")] and not [*cells(page, "run (2p-upbred)")]  # nothing is taken from it
    done = command("report", "--out", tmp_path / "again.html", *copied)
    assert "2p-upbred.db does not verify: chain: entry 3" in done.stderr


def test_amounts_that_do_not_follow_from_their_inputs_are_found(tmp_path: Path) -> None:
    """The chain is whole and the entry sums to zero, but its rule gives other amounts."""
    with ledger.open(tmp_path / "wrong.db") as book:
        honest = settlement("wrong", 0, beta="1", s={"ann": 10**6, "bob": 3 * 10**6})
        book.append(ledger.Entry("wrong", 0, "settlement", honest.rule, honest.inputs, {"ann": -5, "bob": 5}))
    page = written(tmp_path, tmp_path / "wrong.db", code=1)
    assert "1 of 1 ledger does NOT verify" in page and "recompute: entry 1" in page


def test_a_cut_tail_is_seen_by_the_manifest(copied: list[Path], tmp_path: Path) -> None:
    """The chain alone is whole; the run saw a longer one."""
    with ledger.read(copied[1]) as book:
        last = book.head().count
    tamper(copied[1], f"DELETE FROM postings WHERE seq = {last}")
    tamper(copied[1], f"DELETE FROM entries WHERE seq = {last}")
    assert "the tail was cut" in written(tmp_path, copied[1], code=1)
    shutil.rmtree(f"{copied[1]}.runs")
    page = written(tmp_path, copied[1])
    assert "There is no manifest beside the ledger" in page and "no manifest to compare with" in page


def test_a_file_that_is_no_ledger_is_named_too(played: list[Path], tmp_path: Path) -> None:
    (tmp_path / "noise.db").write_bytes(b"SQLite format 3\0" + b"\1" * 5000)
    page = written(tmp_path, played[0], tmp_path / "noise.db", code=1)
    assert "1 of 2 ledgers does NOT verify" in page and "noise.db cannot be" in page


def test_without_a_manifest_nothing_is_guessed(played: list[Path], tmp_path: Path) -> None:
    """Under upbred contributions move after the commitment, and the ledger does not say where to."""
    shutil.copy(played[0], tmp_path / "alone.db")
    page = written(tmp_path, tmp_path / "alone.db")
    assert "No money moved." in page and "The five agents committed 65 of 220 points." in page
    assert next(cells(page, "city"))[1:4] == ["15", "-", "50"]


def test_entries_that_come_after_the_check_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run may be writing while the report is made: only what was verified is reported."""
    path = rogue(tmp_path / "live.db")
    before = ledgers.check(str(path)).runs[0]

    def checked_then_written(book: ledger.Ledger, **options: object) -> object:
        result = verify(book, **options)
        with ledger.open(path) as writing:
            writing.append(settlement("run <b>", 9, beta="1", s=dict.fromkeys(AGENTS[:2], 1) | {ROGUE: 5}))
        return result

    monkeypatch.setattr(ledgers, "verify", checked_then_written)
    after = ledgers.check(str(path))
    assert after.result is not None and after.result.head.count == 4
    assert [after.runs[0].balance(agent) for agent in AGENTS] == [before.balance(agent) for agent in AGENTS]


def test_a_damaged_manifest_is_an_error_that_says_what_to_do(copied: list[Path], tmp_path: Path) -> None:
    path = Path(f"{copied[0]}.runs/run/manifest.json")
    path.write_text('{"run": "run", "settings": 7}')
    with pytest.raises(RunError, match=r"manifest\.json is not the manifest of a run .* move it away"):
        ledgers.check(str(copied[0]))


def test_a_state_folder_belongs_to_the_hosts_ledger(played: list[Path], tmp_path: Path) -> None:
    """As FedML's and Flower's hosts leave it; an emptied ledger does not pass beside the manifest of a run."""
    shutil.copy(played[1], tmp_path / "ledger.sqlite")
    shutil.copytree(f"{played[1]}.runs/run", tmp_path / "state")
    page = written(tmp_path, tmp_path / "ledger.sqlite")
    assert "<h1>run (2p-upbred)</h1>" in page
    (tmp_path / "ledger.sqlite").unlink()
    ledger.open(tmp_path / "ledger.sqlite").close()
    assert "the tail was cut" in written(tmp_path, tmp_path / "ledger.sqlite", code=1)
    rogue(tmp_path / "other.sqlite")
    assert "1 ledger verified." in written(tmp_path, tmp_path / "other.sqlite")  # of another run: not its manifest


def test_a_password_is_not_shown(copied: list[Path], tmp_path: Path) -> None:
    path = Path(f"{copied[0]}.runs/run/manifest.json")
    manifest = json.loads(path.read_text())
    manifest["settings"]["ledger"] = "postgresql://me:secret@example.org/ledger"
    path.write_text(json.dumps(manifest))
    assert "secret" not in written(tmp_path, copied[0])


def test_of_many_agents_the_extremes_are_shown(tmp_path: Path) -> None:
    with ledger.open(tmp_path / "many.db") as book:
        s = {f"agent-{k:03d}": 10**6 * k for k in range(200)}
        book.append(settlement("many", 0, beta="1", s=s))
    page = written(tmp_path, tmp_path / "many.db")
    assert "140 more agents are in the ledger" in page
    assert [*cells(page, "agent-000")] and [*cells(page, "agent-199")] and not [*cells(page, "agent-100")]
    (total,) = cells(page, "all")
    with ledger.read(tmp_path / "many.db") as book:
        assert total[5] == f"{sum(a for a in book.balances().values() if a > 0) / 10**6:,.2f}"


def test_called_wrongly(played: list[Path], tmp_path: Path) -> None:
    missing = command("report", tmp_path / "missing.db")
    assert missing.exit_code == 2 and "There is neither a ledger nor a directory at" in missing.output
    mixed = command("report", tmp_path, played[0])
    assert mixed.exit_code == 2 and "one directory, or any number of ledgers" in mixed.output
    assert command("report").exit_code == 2
    assert not list(tmp_path.iterdir())


def test_it_needs_neither_torch_nor_matplotlib(played: list[Path], tmp_path: Path) -> None:
    code = f"import sys; from fedincentive.reports import ledgers; ledgers.write([{str(played[0])!r}], 'r.html'); "
    code += "print(*({'torch', 'matplotlib', 'scipy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [] and (tmp_path / "r.html").stat().st_size > 5000


def test_a_browser_shows_it_on_a_phone(played: list[Path], tmp_path: Path, phone) -> None:
    found = phone(written(tmp_path, *played, rogue(tmp_path / "rogue.db")))
    assert found["width"] == 390 and found["content"] <= 390  # the page itself never scrolls sideways
    assert found["tables"] >= 9 and found["charts"] >= 6 and found["cells"] and found["letters"]
    assert found["text"] >= 15 and found["requests"] == [] and found["console"] == []


def told(*targets: Path | str) -> str:
    page = ledgers.render([ledgers.check(str(target)) for target in targets])
    return html.unescape(re.sub(r"<[^>]+>", " ", page))


def kept(folder: Path, **incentive: object) -> Path:
    """A run of three agents with 10, 20 and 60 points in a ledger of its own, its manifest beside it."""
    agents = [{"name": name, "s_max": s} for name, s in (("ann", 10), ("bob", 20), ("cid", 60))]
    game = {"game": {"kind": "data-value", "agents": agents}}
    folder.mkdir()
    engine.play(game, **{"mechanism": "2p-upbred", "beta": "0.5", "rounds": 4, "ledger": folder / "l.db", **incentive})
    return folder / "l.db"


def test_it_begins_with_who_paid_whom_and_why(tmp_path: Path) -> None:
    """p_i = beta (s_i - mean of the others): ann 10 - 40 = -30, bob 20 - 35 = -15, cid 60 - 15 = 45, at 0.5 each."""
    path = kept(tmp_path / "a", currency="EUR")
    page = written(tmp_path, path)
    first = "Two agents that gave less data paid 22.50 EUR to one that gave more, at 0.5 EUR for each point above or"
    assert f'<p class="lead">{first} below the others&#x27; average.</p>' in page
    assert "What some paid, others received: no treasury was needed." in page
    assert "The date of the run is not proven: nobody cosigned" in page
    for name, amount in (("ann", "15.00"), ("bob", "7.50"), ("cid", "22.50")):  # the diagram
        assert f"</title>{name}</text>" in page and f'opacity=".8">{amount}</text>' in page
    assert "In EUR, all rounds together." in page and "<dt>Treasury</dt>" in page
    yen = told(kept(tmp_path / "b", currency="JPY"))
    assert "paid 22 JPY to one that gave more" in yen and "22.5" not in yen.split("Exact amounts")[0]


def lead(folder: Path, points: tuple[float, ...] = (10, 20, 60), **incentive: object) -> tuple[str, str]:
    """The first sentence and the others of a run of agents with so many points."""
    agents = [{"name": f"a{k}", "s_max": s} for k, s in enumerate(points)]
    game = {"kind": "data-value", "each": {"cost": incentive.pop("own_cost", 0.001)}, "agents": agents}
    folder.mkdir()
    values = {"mechanism": "2p-upbred", "beta": "0.5", "rounds": 4, "currency": "EUR", **incentive}
    engine.play({"game": game}, ledger=folder / "l.db", **values)
    page = ledgers.render([ledgers.check(str(folder / "l.db"))])
    found = re.search(r'<p class="lead">(.*?)</p><p>(.*?)</p>', page)
    assert found
    return html.unescape(found[1]), html.unescape(found[2])


def test_the_first_sentence_is_true_of_small_equal_and_other_payments(tmp_path: Path) -> None:
    at = ", at {} EUR for each point above or below the others' average"
    assert lead(tmp_path / "a", (10, 10, 10))[0] == "No money moved: every agent gave the same number of points."
    small = lead(tmp_path / "b", (10, 10.001), beta="0.5", own_cost=0.0)[0]
    assert small == "One agent that gave less data paid less than 0.01 EUR to one that gave more" + at.format(0.5) + "."
    lumps = {"a0": "1", "a1": "-0.5", "a2": "-0.5"}
    told = lead(tmp_path / "c", lump_sums=lumps)[0]
    assert told.endswith(at.format(0.5) + ", agreed lump sums included.")
    assert lead(tmp_path / "d", lump_sums=lumps, mechanism="fedavg")[0] == ("Two agents paid 1.00 EUR to one other.")


def test_losses_are_told_in_words_and_against_training_alone(tmp_path: Path) -> None:
    every = lead(tmp_path / "a", own_cost=0.4)[1]
    assert "All three agents lost. a" in every and ", the most: the model is worth " in every
    assert "would have been better off training alone, a" in every
    some = lead(tmp_path / "b", (1000, 1000, 4000), own_cost=0.0001)[1]
    assert re.search(r"(One|Two) of three agents gained, (one|two) lost\. a\d lost [\d,.]+ EUR", some), some
    none = lead(tmp_path / "c", (10, 10, 10))[1]
    assert "more to every agent" in none and "None would have been better off training alone." in none


def test_dates_are_those_of_the_cosigned_checkpoints(tmp_path: Path) -> None:
    folder_of(tmp_path / "keys", ("ann", "bob", "cid"))
    words = told(kept(tmp_path / "a", keys=str(tmp_path / "keys")))
    found = re.search(
        r"The entries were made between (\S+ \S+) UTC and (\S+ \S+) UTC, by the clocks of the agents", words
    )
    assert found, words[:2000]
    first, last = (datetime.fromisoformat(f"{at}+00:00") for at in found.groups())
    assert timedelta() <= last - first < timedelta(minutes=10) and datetime.now(timezone.utc) - last < timedelta(
        hours=1
    )


def test_gains_are_compared_with_no_payments_and_with_training_alone(tmp_path: Path) -> None:
    paid, free = kept(tmp_path / "a", cost=0.1), kept(tmp_path / "b", mechanism="fedavg", cost=0.1)
    path = Path(f"{paid}.runs/run/manifest.json")
    values = json.loads(path.read_text())
    for agent, told in values["agents"].items():
        told.pop("alone")
        told |= {"alone": 1.25} if agent == "ann" else {}
    path.write_text(json.dumps(values))
    page = written(tmp_path, paid, free)
    gains = [{row[0]: row for name in ("ann", "bob", "cid") for row in cells(section, name) if len(row) > 9}
             for section in page.split("<section>")[1:]]  # fmt: skip
    for name in ("ann", "bob", "cid"):
        mine, other = gains[0][name], gains[1][name]
        assert float(mine[11]) == pytest.approx(float(mine[9]) - float(other[9]), abs=0.011)
        assert float(mine[9]) == pytest.approx(float(mine[7]) - float(mine[8]) + float(mine[6]), abs=0.021)
    assert float(gains[0]["ann"][10]) == pytest.approx(float(gains[0]["ann"][9]) - 1.25, abs=0.011)
    assert gains[0]["bob"][10] == "-" and len(gains[1]["ann"]) == 11


def test_nothing_is_cut_where_it_is_printed(tmp_path: Path, phone) -> None:
    """The rules for print at the width of an A4 page that lies on its side, less the margins."""
    page = written(
        tmp_path, kept(tmp_path / "a", cost=0.1, currency="EUR"), kept(tmp_path / "b", mechanism="fedavg", cost=0.1)
    )
    found = phone(page, width=1031, media="print")
    assert found["width"] == 1031 and found["content"] <= 1031 and found["cut"] == []


def test_an_empty_ledger_is_called_empty(tmp_path: Path) -> None:
    with ledger.open(tmp_path / "empty.db"):
        pass
    page = written(tmp_path, tmp_path / "empty.db")
    assert "The ledger is empty." in page and "verified" not in page


def test_what_a_treasury_pays_is_said_first_and_once(played: list[Path], tmp_path: Path) -> None:
    page = written(tmp_path, played[2])
    with ledger.read(played[2]) as book:
        paid = f"{-book.balances()['treasury'] / book.minor:.2f}"
    assert f'<p class="lead">The treasury paid {paid} credits to five agents.</p>' in page
    assert page.count("The treasury") == 1 and "There were 40 training rounds." in page


def test_runs_of_one_name_are_told_apart_by_their_ledgers(played: list[Path], tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    shutil.copy(played[1], other)
    shutil.copytree(f"{played[1]}.runs", f"{other}.runs")
    page = written(tmp_path, played[1], other)
    assert "<h2>run (2p-upbred), 2p-upbred.db</h2>" in page and "<h2>run (2p-upbred), other.db</h2>" in page


def test_money_is_coloured_by_who_pays_and_points_are_not(played: list[Path], tmp_path: Path) -> None:
    page = written(tmp_path, played[1])
    for amount in ('minus" data-title="balance">-1.90', 'plus" data-title="balance">1.60'):
        assert f'<td class="n {amount}</td>' in page
    bars = page.split("Points contributed")[2].split("</svg>")[0]
    assert "var(--data)" in bars and "var(--plus)" not in bars


def test_long_names_are_not_cut_on_a_desk(tmp_path: Path, phone) -> None:
    names = (
        "St. Mary's Hospital of the Immaculate Conception and Saint Bartholomew",
        "Universit\u00e4tsklinikum Z\u00fcrich",
        "b",
    )
    each = {"a": 100.0, "b": 8000.0, "prior": 400.0, "spill": 0.8, "cost": 0.02}
    agents = [{"name": name, "s_max": s} for name, s in zip(names, (20_000, 15_000, 6_000), strict=True)]
    game = {"game": {"kind": "data-value", "each": each, "agents": agents}}
    engine.play(game, mechanism="2p-upbred", beta="0.03", rounds=4, currency="EUR", ledger=tmp_path / "l.db")
    page = written(tmp_path, tmp_path / "l.db")
    assert "against training alone" in page
    found = phone(page.replace("<details", "<details open"), width=1280)
    assert found["cut"] == [] and found["content"] <= 1280
