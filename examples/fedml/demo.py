"""Ten strategic owners of handwritten digits, three mechanisms, FedML's own runner: what do they give, who pays whom?

    python demo.py --out demo-output

Runs `fedavg-strategic` (nobody is paid), `upbred` (nobody is paid, contributions move while training) and `2p-upbred`
(those who give less pay those who give more), each in its own ledger; then `2p-upbred` once more with a liar, who
trains on half of its points, and with auditors. It checks the ledgers, draws a picture and writes a report. Everyone
has a key: terms, reports and broadcasts are signed. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import yaml
from tqdm import tqdm

from fedincentive import ledger
from fedincentive.identity import CENTER
from fedincentive.provenance import audits
from fedincentive.provenance.keys import make

AGENTS, ROUNDS = 10, 25
PROGRAM = Path(sys.executable).parent / "fedincentive"
MECHANISMS = ("fedavg-strategic", "upbred", "2p-upbred")
LIAR, AUDITORS = "agent-04", ("ann", "bea", "cleo")
STEPS = {"upbred": {"gamma": 60.0}}  # contributions and model move together there, in steps of a size that is given
AUDITED = {"auditors": list(AUDITORS), "audit": 0.2, "steering": "0.5"}  # a round of steering gains at most 0.5
INCENTIVE = {
    "beta": "0.15",
    "value_per_nat": 60.0,  # a nat of loss is worth 60 units of money to each agent
    "cost": {f"agent-{i:02d}": round(0.04 + 0.02 * (i % 4), 2) for i in range(1, AGENTS + 1)},
    "delta": 20,
    "tol": 0.01,
}


@dataclass(frozen=True)
class Result:
    """One mechanism's run: its outcome, and welfare and contributions round by round."""

    mechanism: str
    outcome: object
    welfare: list[float]
    share: list[float]
    ledger: Path

    def utility(self, agent: str) -> float:
        """u_i = v_i - c_i + p_i, in units of money."""
        o = self.outcome
        return o.valuations[agent] - INCENTIVE["cost"][agent] * o.s[agent] + o.payments[agent] / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("demo-output"), help="where all that it makes goes")
    out = parser.parse_args().out.resolve()
    for old in ("runs", "configs", "keys"):
        shutil.rmtree(out / old, ignore_errors=True)
    (out / "configs").mkdir(parents=True)
    for name in (CENTER, *AUDITORS, *INCENTIVE["cost"]):
        make(name, out / "keys")
    begun = time.monotonic()
    print(
        f"{AGENTS} agents share scikit-learn's digits; FedML is starting (its own log: {out / 'fedml.log'}) ...",
        flush=True,
    )
    with fedml_log(out / "fedml.log") as screen:
        results = [play(mechanism, out, screen) for mechanism in MECHANISMS]
        caught = play("2p-upbred", out, screen, lies={LIAR: "under-train"})
    table(results)
    liar(results[-1], caught)
    verify([*results, caught])
    print(f"\nPicture: {draw(results, out / 'demo.png')}")
    print(f"Report:  {report([*results, caught], out / 'report.html')}")
    proofs = len(list((out / "runs").glob("*/receipts/*/receipt-*.json")))
    print(f"Proofs:  {proofs} receipts of the agents in {out / 'runs'}/*/receipts (fedincentive receipt verify)")
    print(f"Done in {time.monotonic() - begun:.0f} s.")


@contextlib.contextmanager
def fedml_log(path: Path) -> Iterator[TextIO]:
    """FedML writes to stdout and stderr and replaces sys.stdout.write: its noise goes to a file, the screen is ours."""
    sys.stdout.flush()
    screen, errors, log = os.dup(1), os.dup(2), os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    before = sys.excepthook, sys.stdout
    try:
        with os.fdopen(os.dup(screen), "w", buffering=1) as file:
            yield file
    finally:
        sys.excepthook, sys.stdout = before[0], os.fdopen(os.dup(screen), "w", buffering=1)
        os.dup2(screen, 1)
        os.dup2(errors, 2)


def play(mechanism: str, out: Path, screen: TextIO, lies: dict[str, str] | None = None) -> Result:
    """Write the YAML a user would write, and run FedML's runner on it; with liars the run is audited."""
    import fedml
    import torch
    from fedincentive.plugins.fedml import IncentiveClientTrainer
    from fedml import FedMLRunner
    from main import digits

    name = f"{mechanism}-audited" if lies else mechanism
    file = out / "configs" / f"{name}.yaml"
    file.write_text(yaml.safe_dump(configuration(mechanism, out, AUDITED if lies else {}), sort_keys=False))
    sys.argv = ["demo.py", "--cf", str(file), "--run_id", name]
    args = fedml.init()
    torch.manual_seed(args.random_seed)
    torch.set_num_threads(1)
    dataset = digits(AGENTS, args.batch_size, args.random_seed)
    model = torch.nn.Sequential(torch.nn.Linear(64, 10))
    trainer = IncentiveClientTrainer(model, args, lies=lies) if lies else None
    fedml_runner = FedMLRunner(args, fedml.device.get_device(args), dataset, model, trainer)
    watched = watch(fedml_runner.runner, screen, name)
    fedml_runner.run()
    watched.bar.close()
    book = out / "runs" / name / "ledger.sqlite"
    return Result(name, fedml_runner.runner.outcome, watched.welfare, watched.share, book)


def configuration(mechanism: str, out: Path, more: dict) -> dict:
    values = yaml.safe_load((Path(__file__).parent / "single_process.yaml").read_text())
    values["train_args"] |= {"federated_optimizer": mechanism, "comm_round": ROUNDS, "learning_rate": 0.3}
    values["validation_args"]["frequency_of_the_test"] = 5
    own = {"output": str(out / "runs"), "keys": str(out / "keys"), **STEPS.get(mechanism, {}), **more}
    values["incentive_args"]["incentive"] = {**INCENTIVE, **own}
    return values


class watch:
    """Follows a run: a progress bar, and the curves of the picture."""

    def __init__(self, runner: object, screen: TextIO, mechanism: str) -> None:
        self.bar = tqdm(total=ROUNDS, desc=f"{mechanism:<17}", file=screen, unit="round")
        self.bar.mininterval = 0.2 if screen.isatty() else 10.0
        self.welfare: list[float] = []
        self.share: list[float] = []
        runner.watchers.append(self.see)

    def see(self, result: object) -> None:
        if result.phase in ("accept", "confirm", "audit"):
            return
        share = result.metrics.get("contribution_share", 0.0)
        self.share.append(share)
        if result.phase == "contribute":
            self.bar.set_postfix_str(f"phase 1, round {result.round + 1}: {share:.0%} of all points", refresh=False)
            self.bar.update(0)
        elif result.phase == "train":
            welfare = result.metrics.get("welfare", 0.0)
            self.bar.set_postfix_str(f"{share:.0%} of all points, welfare {welfare:.0f}", refresh=False)
            self.bar.update()
        if result.phase != "contribute" and "welfare" in result.metrics:
            self.welfare.append(result.metrics["welfare"])


def table(results: list[Result]) -> None:
    """What every agent gave before and after, what it was paid, and what it gained by it."""
    first = results[0].outcome
    heads = "".join(f"| {result.mechanism:^29} " for result in results)
    print(f"\n{'agent':<9}{'points':>7}{'cost':>6}{'start':>6} {heads}")
    print(f"{'':<29}" + "".join(f"| {'gives':>7}{'paid':>10}{'utility':>11} " for _ in results))
    for agent in first.s:
        row = f"{agent:<9}{first.s_max[agent]:>7.0f}{INCENTIVE['cost'][agent]:>6.2f}{first.s0[agent]:>6.0f} "
        for result in results:
            o = result.outcome
            row += f"| {o.s[agent]:>7.0f}{o.payments[agent] / 1e6:>+10.2f}{result.utility(agent):>11.2f} "
        print(row)
    print(f"{'all':<9}{sum(first.s_max.values()):>7.0f}{'':>6}{sum(first.s0.values()):>6.0f} ", end="")
    for result in results:
        o = result.outcome
        total = sum(result.utility(agent) for agent in o.s)
        print(f"| {sum(o.s.values()):>7.0f}{sum(o.payments.values()) / 1e6:>+10.2f}{total:>11.2f} ", end="")
    print("\n\nWelfare (sum of what the model is worth to each agent), and net of what the data cost them:")
    for result in results:
        o = result.outcome
        welfare = sum(o.valuations.values())
        net = welfare - sum(INCENTIVE["cost"][agent] * o.s[agent] for agent in o.s)
        phase_one = f"phase 1: {o.contributed} rounds" + ("" if o.status == "complete" else f", {o.status}")
        print(f"  {result.mechanism:<17} welfare {welfare:8.1f}   net {net:8.1f}   {phase_one}")


def liar(honest: Result, caught: Result) -> None:
    """What lying about its training brings an agent where deliveries are audited."""
    before, after = (result.outcome.payments[LIAR] / 1e6 for result in (honest, caught))
    with ledger.open(caught.ledger) as book:
        entries = [record.entry for record in book.entries()]
    deposit = next(e for e in entries if e.kind == "deposit").inputs["deposits"][LIAR] / 1e6
    step = next((e.inputs["step"] for e in entries if e.rule == audits.RULE and LIAR in e.inputs["failed"]), None)
    heard = sum(len(one.get("verdicts", ())) for e in entries if e.rule == audits.RULE for one in e.inputs["heard"])
    print(f"\nThe same with audits: {LIAR} trains on half of its points and says that it used them all.")
    print(f"  {heard} verdicts of {', '.join(AUDITORS)}; everyone's deposit is held until the last one.")
    if step is None:
        print(f"  {LIAR} was not drawn in {ROUNDS} rounds: a chance of {(1 - AUDITED['audit']) ** ROUNDS:.1%}.")
        return
    print(f"  {LIAR} failed the audit of training round {step + 1} and lost its deposit of {deposit:.2f}.")
    print(f"  Its balance is {after:+.2f}; honest it would be {before:+.2f}.")


def verify(results: list[Result]) -> None:
    print("\nThe ledgers, checked from outside (every amount derived again, every signature checked):")
    for result in results:
        done = subprocess.run(
            [PROGRAM, "ledger", "verify", result.ledger, "--recompute"], capture_output=True, text=True
        )
        print(f"  {result.mechanism:<17} {(done.stdout or done.stderr).strip()}")
        if done.returncode != 0:
            raise SystemExit(1)


def report(results: list[Result], path: Path) -> Path:
    """The run as one HTML page, from the ledgers."""
    command = [PROGRAM, "report", "--out", path, *(result.ledger for result in results)]
    if subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0:
        raise SystemExit(1)
    return path


def draw(results: list[Result], path: Path) -> Path:
    """Contributions and welfare over the rounds, and who pays whom under 2p-upbred."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    colours = dict(zip(MECHANISMS, ("#D55E00", "#E69F00", "#0072B2"), strict=True))
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    for result in results:
        style = {"color": colours[result.mechanism], "linewidth": 2.2}
        start = sum(result.outcome.s0.values()) / sum(result.outcome.s_max.values())
        shares = [start, *result.share]
        left.plot(range(len(shares)), [100 * share for share in shares], **style)
        middle.plot(range(len(result.welfare)), result.welfare, label=result.mechanism, **style)
    left.set(
        title="What agents contribute",
        xlabel="round (phase 1, then training)",
        ylabel="% of all points",
        ylim=(-3, 105),
    )
    middle.set(title="What the model is worth to them", xlabel="training round", ylabel="welfare")
    middle.legend(frameon=False, loc="lower right")
    paid = results[-1].outcome
    amounts = [paid.payments[agent] / 1e6 for agent in paid.s]
    right.barh(list(paid.s), amounts, color=["#0072B2" if amount >= 0 else "#D55E00" for amount in amounts])
    right.axvline(0, color="black", linewidth=0.8)
    right.set(title="Paid (+) and charged (-) under 2p-upbred", xlabel="units of money; they sum to 0")
    right.invert_yaxis()
    for axes in (left, middle, right):
        axes.title.set_fontsize(11)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)
    return path


if __name__ == "__main__":
    main()
