"""Does a run survive kill -9, damage to its state, and a second process? It ends as if undisturbed, or is refused.

    python benchmarks/kill_runs.py --kills 500 --damages 1000 --pairs 50

plays `fedincentive play --resume` in processes of its own. Kills: at random moments, until so many have hit; the run is
resumed after each. Damages: of one file of a state that a kill left (a bit, a cut, another or no file, an older one of
the same run, one of another run, a stale model under the name of the new one), then the run is resumed. Pairs: a second
process while the first plays, which must be refused and name the first; then the first is killed and the second takes
over. At the end the exported ledger, the model file and the outcome must be those of the undisturbed run byte for byte,
or the command must refuse in words and without a traceback. Prints the counts; exits 1 where anything else happened.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from tqdm import tqdm

from fedincentive import cli, engine, ledger, plots  # noqa: F401  # what a child needs is imported once
from fedincentive.ledger.export import to_jsonl

FARMS = {
    "kind": "data-value", "curve": "logarithm", "w0": [1.0, 0.5],
    "each": {"b": 1.0, "scale": 1.0, "cost": 0.2, "ideal": [0.0, 0.2]},
    "agents": [{"name": name, "s_max": s, "s0": 5} for name, s in (("hill", 20), ("dale", 30), ("coast", 40))],
}  # fmt: skip
TERMS = {
    "paid": {
        "mechanism": "2p-upbred", "payment": "both", "beta": "0.5", "gamma": 9.0, "eta": 0.1,
        "server_optimizer": "adam", "audit": 0.5, "audit_seed": 3, "sampled": 2, "loss_cap": 10_000.0,
    },
    "truthful": {"mechanism": "t-upbred", "gamma": 0.5, "eta": 0.1, "loss_cap": 10_000.0, "slope": "paper"},
}  # fmt: skip
LIES = {"paid": "dale=inflate-v", "truthful": "hill=understate-s"}  # agents with a memory
KILLS_PER_RUN = 12
tqdm.set_lock(threading.RLock())  # its own is shared with children: one killed while it holds it would stop all others


@dataclass
class Play:
    """One game with its terms, how it ends when it is left alone, and what kills left of it, in order."""

    name: str
    home: Path
    expected: tuple[bytes, bytes, str] = (b"", b"", "")
    seconds: float = 0.0
    left: list[Path] = field(default_factory=list)

    def start(self, folder: Path) -> int:
        """The real command in a process of its own; returns its id."""
        folder.mkdir(exist_ok=True)
        command = ["play", str(self.home / f"{self.name}.yaml"), "--ledger", "ledger.db", "--resume", "--json"]
        child = os.fork()
        if child == 0:
            try:
                os.chdir(folder)
                os.dup2(os.open("out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
                os.dup2(os.open("err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
                cli.main([*command, "--lies", LIES[self.name]])
            except SystemExit as end:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(end.code if isinstance(end.code, int) else 1)
            except BaseException:
                traceback.print_exc()
            os._exit(70)
        return child

    def ended(self, folder: Path) -> tuple[bytes, bytes, str]:
        """What may not differ: the ledger's and the model's bytes, and the outcome."""
        with ledger.read(folder / "ledger.db") as book:
            text = "".join(to_jsonl(book)).encode()
        (model,) = self.state(folder).glob("model-*")
        return text, model.read_bytes(), (folder / "out").read_text()

    @staticmethod
    def state(folder: Path) -> Path:
        return folder / "ledger.db.runs" / "run"

    def verdict(self, folder: Path, code: int) -> str:
        if code == 0:
            return "the same" if self.ended(folder) == self.expected else "OTHER RESULT"
        said = (folder / "err").read_text()
        return "refused" if code == 1 and said.startswith("Error: ") and "Traceback" not in said else "TRACEBACK"


def wait(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def prepare(home: Path, rounds: int) -> list[Play]:
    plays = [Play(name, home) for name in TERMS]
    for play in plays:
        terms = {"game": FARMS, "incentive": {**TERMS[play.name], "rounds": rounds}}
        (home / f"{play.name}.yaml").write_text(yaml.safe_dump(terms))
        began = time.monotonic()
        code = wait(play.start(whole := home / f"{play.name}-whole"))
        play.seconds = time.monotonic() - began
        assert code == 0, (whole / "err").read_text()
        play.expected = play.ended(whole)
        print(f"{play.name}: {rounds} rounds take {play.seconds:.2f} s undisturbed")
    return plays


def kill(plays: list[Play], kills: int, dice: random.Random, show: Callable[[], object]) -> Counter[str]:
    """Runs that are killed at random moments and resumed, until so many kills have hit."""
    found: Counter[str] = Counter()
    while found["kills"] < kills:
        play = plays[found["runs"] % len(plays)]
        folder = Path(tempfile.mkdtemp(prefix="killed-", dir=play.home))
        for hit in range(KILLS_PER_RUN + 1):
            child = play.start(folder)
            if hit < KILLS_PER_RUN and found["kills"] < kills:
                time.sleep(dice.uniform(0.0, 0.8 * play.seconds))
                os.kill(child, signal.SIGKILL)
            code = wait(child)
            if code != -signal.SIGKILL:
                found[play.verdict(folder, code)] += 1
                break
            found["kills"] += 1
            show()
            if (play.state(folder) / "state.json").exists():
                play.left.append(folder.with_name(f"{folder.name}-{hit}"))
                shutil.copytree(folder, play.left[-1])
        found["runs"] += 1
        shutil.rmtree(folder)
    return found


def damage(path: Path, kind: str, dice: random.Random, other: bytes) -> None:
    data = bytearray(path.read_bytes())
    at = dice.randrange(len(data)) if data else 0
    if kind == "bit" and data:
        data[at] ^= 1 << dice.randrange(8)
    elif kind == "byte" and data:
        data[at] = dice.randrange(256)
    elif kind == "cut":
        del data[at:]
    elif kind == "zeros":
        data[at : at + 512] = bytes(len(data[at : at + 512]))
    elif kind == "longer":
        data += dice.randbytes(dice.randrange(1, 100))
    elif kind == "other":
        data = bytearray(other)
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind != "missing":
        path.write_bytes(data)


KINDS = ("bit", "bit", "byte", "cut", "zeros", "longer", "missing", "folder", "other", "other", "other")


def harm(plays: list[Play], damages: int, dice: random.Random, show: Callable[[], object]) -> Counter[str]:
    """One damage to one file of a state that was left, then resume."""
    found: Counter[str] = Counter()
    while sum(found.values()) < damages:
        play = dice.choice([play for play in plays if play.left])
        left, source = dice.choice(play.left), dice.choice([one for some in plays for one in some.left])
        folder = Path(tempfile.mkdtemp(prefix="harmed-", dir=play.home))
        shutil.copytree(left, folder, dirs_exist_ok=True)
        names = sorted(path.name for path in play.state(left).iterdir() if path.is_file() and path.name != "lock")
        name, kind = dice.choice(names), dice.choice(KINDS)
        alike = list(play.state(source).glob("model-*" if name.startswith("model-") else name))
        other = alike[0].read_bytes() if alike else b"{}"
        path = play.state(folder) / name
        before = path.read_bytes()
        damage(path, kind, dice, other)
        if path.is_file() and path.read_bytes() == before:
            shutil.rmtree(folder)
            continue  # no damage after all
        verdict = play.verdict(folder, wait(play.start(folder)))
        found[verdict] += 1
        show()
        if verdict.isupper():
            print(f"{verdict}: {kind} in {name} of {left.name}, from {source.name}: {(folder / 'err').read_text()}")
        shutil.rmtree(folder)
    return found


def pair(plays: list[Play], pairs: int, dice: random.Random, show: Callable[[], object]) -> Counter[str]:
    """A second process while the first plays, and after the first was killed."""
    found: Counter[str] = Counter()
    while found["pairs"] < pairs:
        play = dice.choice(plays)
        folder = Path(tempfile.mkdtemp(prefix="pair-", dir=play.home))
        first, saved = play.start(folder), play.state(folder) / "state.json"
        time.sleep(dice.uniform(0.0, play.seconds))
        os.kill(first, signal.SIGSTOP)  # or it may end before the second has looked
        if saved.exists() and '"phase": "done"' not in saved.read_text():
            code = wait(play.start(folder))
            said = (folder / "err").read_text()
            named = code == 1 and f"is being played by process {first} on " in said
            found["second refused by name" if named else "SECOND NOT REFUSED"] += 1
            found["pairs"] += 1
            show()
            if dice.random() < 0.5:
                os.kill(first, signal.SIGKILL)
                os.kill(first, signal.SIGCONT)
                wait(first)
                found[f"after a kill {play.verdict(folder, wait(play.start(folder)))}"] += 1
            else:
                os.kill(first, signal.SIGCONT)
                code = wait(first)  # its words went to files that the second one wrote over
                found["first ended" if code == 0 else "FIRST DIED"] += 1
                found[f"read again {play.verdict(folder, wait(play.start(folder)))}"] += 1
        else:
            os.kill(first, signal.SIGCONT)
            wait(first)
        shutil.rmtree(folder)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--damages", type=int, default=1000)
    parser.add_argument("--pairs", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    dice, wrong = random.Random(options.seed), False
    with tempfile.TemporaryDirectory(prefix="fedincentive-kill-") as home:
        plays = prepare(Path(home), options.rounds)
        for work, count in ((kill, options.kills), (harm, options.damages), (pair, options.pairs)):
            with tqdm(total=count, desc=work.__name__, disable=None, leave=False) as bar:
                found = work(plays, count, dice, bar.update)
            print(f"{work.__name__}: {json.dumps(found, sort_keys=True)}", flush=True)
            wrong = wrong or any(name.upper() == name or name.split()[-1].isupper() for name in found)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
