"""A program that appends to a ledger until it is done or stopped, for the tests that stop it.

writer.py LEDGER RUN FIRST LAST    appends these rounds and says each acknowledged one

Agents and amounts depend on the round only, so that whoever knows the round knows the entry.
"""

from __future__ import annotations

import os
import sys

from fedincentive import ledger
from fedincentive.errors import LedgerError


def entry(run: str, round: int, n: int = 20) -> ledger.Entry:
    amounts = {f"agent-{k:02d}": (k - round) * 1000 for k in range(n)}
    amounts["agent-00"] -= sum(amounts.values())
    return ledger.Entry(run, round, "settlement", "x/1", {"s": amounts}, amounts, ("budget-balanced",))


if __name__ == "__main__":
    path, run, first, last = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    book = ledger.open(path)
    for round in range(first, last):
        try:
            receipt = book.append(entry(run, round))
        except LedgerError as error:
            os.write(1, f"error {error}\n".encode())
            sys.exit(3)
        os.write(1, f"{round} {receipt.seq} {receipt.hash}\n".encode())
