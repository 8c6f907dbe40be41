"""However a PostgreSQL address holds its password, nobody reads it in a message, a traceback, a repr or a manifest."""

from __future__ import annotations

import logging
import traceback

import pytest
from commands import command

from fedincentive import Settings, ledger
from fedincentive.errors import LedgerError
from fedincentive.ledger.address import Address, shown

SECRET = "s3cr"  # in every password below
ADDRESSES = [
    "postgresql://me:s3cret@127.0.0.1:1/x",
    "postgres://me:s3cret@127.0.0.1:1/x",
    "postgresql://:s3cret@127.0.0.1:1/x",
    "postgresql://me:s3cr%40t@127.0.0.1:1/x",
    "postgresql://me:s3cr%2Ft@127.0.0.1:1/x",
    "postgresql://me:s3cr#t@127.0.0.1:1/x",
    "postgresql://me:s3cr?t@127.0.0.1:1/x",
    "postgresql://me:s3cr:t@127.0.0.1:1/x",
    "postgresql://me:s3cr%zz@127.0.0.1:1/x",
    "postgresql://me:s3cr%@127.0.0.1:1/x",
    "postgresql://me:p/s3cr@127.0.0.1:1/x",
    "postgresql://me:1/s3cr@127.0.0.1:1/x",
    "postgresql://me:s3cr/t@127.0.0.1:1/x",
    "postgresql://me:p@s3cr@127.0.0.1:1/x",
    "postgresql://me:p@s3cr/t@127.0.0.1:1/x",
    "postgresql://me@127.0.0.1:1/x?password=s3cret",
    "postgresql://127.0.0.1:1/x?user=me&password=s3cr%40t",
    "postgresql://me@127.0.0.1:1/x?password=s3cr@t",
    "postgresql://me@127.0.0.1:1/x?password=s3cr#t",
    "postgresql://me@127.0.0.1:1/x?sslpassword=s3cret&sslmode=disable",
    "postgresql://me@127.0.0.1:1/x?passfile=/s3cret/pgpass",
    "postgresql://me@127.0.0.1:1/x?pasword=s3cret",
    "postgresql://me@127.0.0.1:1/x?password=a&s3cret",
    "postgresql://me:s3cret@127.0.0.1:port/x",
    "postgresql://me:s3cret@[127.0.0.1:1/x",
    "PostgreSQL://me:s3cret@127.0.0.1:1/x",
    "mysql://me:s3cret@127.0.0.1:1/x",
    "host=127.0.0.1 port=1 user=me password=s3cret",
    "password=s3cret host=127.0.0.1 port=1",
    " user = me password = 's3cr t' hostaddr=127.0.0.1",
    "dbname=postgresql://me:s3cret@127.0.0.1:1/x",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_no_password_is_shown(address, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    monkeypatch.chdir(tmp_path)
    for opener in (ledger.open, ledger.read):
        with pytest.raises(LedgerError) as caught:
            opener(address)
        told = "".join(traceback.format_exception(caught.value))
        assert SECRET not in told.split("LedgerError", 1)[1] and SECRET not in str(caught.value)
        assert all(SECRET not in line for line in told.splitlines() if not line.startswith("  "))
    assert SECRET not in shown(address)
    assert SECRET not in repr(Settings(ledger=address))
    for words in (["ledger", "verify"], ["ledger", "head"], ["ledger", "balances"], ["report"]):
        done = command(*words, address)
        assert done.exit_code != 0 and SECRET not in done.output
    assert SECRET not in caplog.text
    assert not list(tmp_path.glob("*s3cr*"))


def test_an_address_is_shown_without_what_it_need_not_say():
    assert shown("postgresql://me:s3cret@127.0.0.1:5432/x?sslmode=require") == "postgresql://me@127.0.0.1:5432/x"
    assert shown("postgresql:///x?host=/var/run") == "postgresql:///var/run/x"
    assert shown("runs/a.db") == "runs/a.db" and shown("a=b.db") == "a=b.db"
    assert "s3cret" not in repr(Address("postgresql://me:s3cret@127.0.0.1/x"))


def test_a_refused_login_says_why_without_the_password(postgres):
    with pytest.raises(LedgerError, match=r'role "nobody" does not exist'):
        ledger.open(postgres.address().replace("postgres@", "nobody:s3cret@"))
    with pytest.raises(LedgerError, match="its words are left out") as caught:
        ledger.open(postgres.address().replace("postgres@", "s3cret:s3cret@"))
    assert caught.value.__cause__ is None
