"""A real run in a real process, for the tests that kill it. Not a test itself.

crashing_run.py play DIR TERMS          play or resume the run in DIR; says "go" when it starts, then its outcome
crashing_run.py everywhere DIR TERMS    kill a run around each thing it writes, resume it each time
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import table  # noqa: E402

from fedincentive import ledger  # noqa: E402
from fedincentive.game import random_data_value  # noqa: E402
from fedincentive.ledger.sqlite import SQLiteLedger  # noqa: E402
from fedincentive.manifest import Heads  # noqa: E402


def play(directory: Path, terms: dict) -> dict:
    game = random_data_value(3, 4, 3)
    options = {"resume": True, "run": "killed", "lies": terms.get("lies", {}), **terms["incentive"]}
    with ledger.open(directory / "ledger.db") as book:
        center, agents = table.set_table(game, book=book, folder=directory / "state", **options)
        print("go", flush=True)
        outcome = table.play(center, agents)
        chain = [record.hash for record in book.entries()]
    manifest = json.loads((directory / "state" / "manifest.json").read_text())
    return {
        "outcome": outcome.to_json(),
        "chain": chain,
        "checkpoints": manifest["checkpoints"],
        "end": manifest["outcome"],
    }


class Fuse:
    """Kills this process at the n-th thing it writes: before it is written, or just after."""

    def __init__(self, at: int, after: bool) -> None:
        self.at, self.after, self.count = at, after, 0

    def around(self, write):
        def burning(*arguments, **options):
            self.count += 1
            if self.count == self.at and not self.after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = write(*arguments, **options)
            if self.count == self.at:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return burning

    def light(self) -> None:
        os.replace = self.around(os.replace)
        SQLiteLedger.append_all = self.around(SQLiteLedger.append_all)
        Heads._write = self.around(Heads._write)


def in_a_child(work) -> int:
    """Runs `work` in a process of its own; returns how that ended."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def everywhere(directory: Path, terms: dict) -> None:
    def whole() -> None:
        fuse = Fuse(0, False)
        fuse.light()
        found = play(directory / "whole", terms)
        (directory / "whole.json").write_text(json.dumps({**found, "writes": fuse.count}))

    (directory / "whole").mkdir()
    assert in_a_child(whole) == 0
    expected = json.loads((directory / "whole.json").read_text())
    writes = expected.pop("writes")
    # Dying after one write is dying before the next: only the last one has an after of its own.
    for at, after in [*((at, False) for at in range(1, writes + 1)), (writes, True)]:
        place = directory / f"{at}-{after}"
        place.mkdir()

        def crash(place=place, at=at, after=after) -> None:
            Fuse(at, after).light()
            play(place, terms)

        def resume(place=place) -> None:
            (place / "found.json").write_text(json.dumps(play(place, terms)))

        status = in_a_child(crash)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, (at, after, status)
        assert in_a_child(resume) == 0, (at, after)
        found = json.loads((place / "found.json").read_text())
        assert found == expected, (at, after, found, expected)
    print(json.dumps({"writes": writes, "crashes": writes + 1}))


if __name__ == "__main__":
    command, where, given = sys.argv[1:]
    if command == "everywhere":
        everywhere(Path(where), json.loads(given))
    else:
        print(json.dumps(play(Path(where), json.loads(given))), flush=True)
