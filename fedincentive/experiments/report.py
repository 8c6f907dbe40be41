"""A run as one HTML page: figures, results, contributions and payments, certificate, ledger, settings.

The page is self-contained (figures inside, no scripts, no requests) and reads well on a phone.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import ledger
from ..errors import LedgerError, RunError
from ..files import replace
from ..ledger import Checkpoint
from ..ledger.verify import verify
from ..reports.page import details, pre, table, text
from ..reports.page import page as shell
from . import paper_claims, runner
from .studies import STUDIES, Record

SHOWN = 60  # rows of a table; results.csv has them all
HIDDEN = ("head", "model", "certificate", "status", "deviator", "ending")


def write(run: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a study's directory, or of a directory of studies, and return its path."""
    run = Path(run)
    folders = [run] if (run / "results.jsonl").exists() else sorted(path.parent for path in run.glob("*/results.jsonl"))
    if not folders:
        raise RunError(_nothing_in(run))
    order = list(STUDIES)
    folders.sort(key=lambda folder: order.index(folder.name) if folder.name in order else len(order))
    path = Path(out) if out is not None else run / "report.html"
    html = page(folders).encode()
    replace(path, lambda file: file.write(html), durable=False)
    return path


def _nothing_in(run: Path) -> str:
    if (run / "manifest.json").exists():
        return f"{run} holds a study that was not finished. Continue it with `fedincentive reproduce ... --resume`."
    ledger = next(iter(sorted(run.glob("*.sqlite"))), "a ledger file")
    said = f"{run} is neither a run with a ledger nor a study of `fedincentive reproduce`."
    return f"{said} Name {ledger} or such a folder."


def page(folders: Sequence[Path]) -> str:
    """The whole page for one or more studies."""
    sections = [section(folder, titled=len(folders) > 1) for folder in folders]
    names = [runner.read_manifest(folder)["study"] for folder in folders]
    title = STUDIES[names[0]].title if len(names) == 1 else "Experiments"
    contents = "".join(f'<li><a href="#{text(n)}">{text(STUDIES[n].title)}</a></li>' for n in names)
    toc = f"<nav><ul>{contents}</ul></nav>{_claims(folders[0].parent)}" if len(names) > 1 else ""
    return shell(title, f"{toc}<main>{''.join(sections)}</main>")


def section(folder: Path, *, titled: bool) -> str:
    manifest, records = runner.read_manifest(folder), runner.lines(folder / "results.jsonl")
    name = manifest["study"]
    parts = [
        f'<section id="{text(name)}">' + (f"<h2>{text(STUDIES[name].title)}</h2>" if titled else ""),
        f"<p>{text(_made(manifest, len(records)))}</p>",
        *(_figure(path) for path in sorted(folder.glob("*.png"))),
        _results(records),
        _agents(records),
        _ledger(folder, manifest),
        details("Settings", pre(json.dumps(manifest["settings"], indent=1))),
        details("Versions and machine", pre(json.dumps({k: manifest[k] for k in ("versions", "machine")}, indent=1))),
        "</section>",
    ]
    return "".join(parts)


def _claims(root: Path) -> str:
    """Each claim of the paper beside what came out."""
    rows = "".join(
        f"<tr><td>{text(o.claim)}</td><td>{text(o.measured)}</td><td>{text(o.held)}</td></tr>"
        for o in paper_claims.outcomes(root)
    )
    head = "<tr><th>claim of the paper</th><th>what came out</th><th>held</th></tr>"
    return f'<h2>Claims</h2><table class="words"><thead>{head}</thead><tbody>{rows}</tbody></table>' if rows else ""


def _made(manifest: Mapping[str, Any], runs: int) -> str:
    commit = manifest["versions"].get("commit")
    made = f"{runs} runs of the preset {manifest['preset']!r} in {manifest.get('seconds', 0.0):.0f} s"
    made += f" ({manifest.get('processor_seconds', 0.0):.0f} s of processor time)"
    return f"{made}, fedincentive {manifest['versions']['fedincentive']}" + (f" at {commit[:12]}." if commit else ".")


def _figure(path: Path) -> str:
    """A figure that is never wider than it was drawn; on a phone it keeps half that width and scrolls in its box."""
    raw = path.read_bytes()
    width = int.from_bytes(raw[16:20], "big")  # of a PNG's header
    style = f"max-width:{width}px;min-width:{width // 2}px"
    image = base64.b64encode(raw).decode()
    return f'<figure><img alt="{text(path.stem)}" style="{style}" src="data:image/png;base64,{image}"></figure>'


def _results(records: Sequence[Record]) -> str:
    """Means over seeds of the scalar results, one row per setting."""
    rows: dict[tuple, list[Mapping[str, Any]]] = {}
    for record in records:
        key = tuple((k, str(v)) for k, v in record["case"].items() if k not in ("seed", "game"))
        rows.setdefault(key, []).append(record["result"])
    columns = list(dict.fromkeys(k for key in rows for k, _ in key))
    values = list(
        dict.fromkeys(
            k for group in rows.values() for r in group for k, v in r.items() if _number(v) and k not in HIDDEN
        )
    )
    body = []
    for key, group in rows.items():
        case = dict(key)
        means = [[r[v] for r in group if _number(r.get(v))] for v in values]
        cells = [f"{np.mean(m):.4g}" if m else "" for m in means]
        body.append([*(case.get(c, "") for c in columns), str(len(group)), *cells])
    if not values:
        return ""
    shown = table([*columns, "runs", *values], body[:SHOWN], numbers=len(columns))
    more = f"<p>{len(body) - SHOWN} more rows are in results.csv.</p>" if len(body) > SHOWN else ""
    return details("Results (means over runs)", shown + more, open_=len(body) <= 12)


def _agents(records: Sequence[Record]) -> str:
    """Contributions, payments and the certificate of one run: one in which money moved, if there is any."""
    tables = [r for r in records if "agents" in r["result"]]
    if not tables:
        return ""

    def moved(record: Record) -> tuple[bool, bool]:
        paid = any(agent["payment"] for agent in record["result"]["agents"].values())
        return paid, record["case"].get("mechanism") == "2p-upbred"

    record = max(tables, key=moved)  # the first of equals
    agents = record["result"]["agents"]
    columns = list(next(iter(agents.values())))
    body = [[name, *(f"{agent[c]:,.2f}" for c in columns)] for name, agent in agents.items()]
    total = ["sum", *(f"{sum(agent[c] for agent in agents.values()):,.2f}" for c in columns)]
    chosen = ", ".join(f"{k} {v}" for k, v in record["case"].items())
    return (
        f"<h3>Contributions and payments</h3><p>One run: {text(chosen)}. Points, and units of money.</p>"
        + table(["agent", *columns], [*body[:SHOWN], total], numbers=1)
        + "<h3>Certificate</h3>"
        + pre(record["result"]["certificate"])
    )


def _ledger(folder: Path, manifest: Mapping[str, Any]) -> str:
    """Every ledger of the run: its head in the manifest, and what checking the file says."""
    heads = {name: head for name, head in manifest.get("ledgers", {}).items() if head["count"]}
    if not heads:
        return ""
    body = [
        [name.removesuffix(".db"), str(head["count"]), head["hash"][:16], _checked(folder / "ledger" / name, head)]
        for name, head in heads.items()
    ]
    shown = table(["ledger", "entries", "head", "verification"], body, numbers=3)
    return "<h3>Ledger</h3>" + details(f"{len(body)} ledgers", shown, open_=len(body) <= 6)


def _checked(path: Path, head: Mapping[str, Any]) -> str:
    if not path.exists():
        return "not here: only its head was kept"
    try:
        with ledger.read(path) as book:
            result = verify(book, recompute=True, checkpoints=[Checkpoint(head["count"], head["hash"])])
    except LedgerError as error:
        return f"unreadable: {error}"
    return f"verified: {result.postings} postings recomputed" if result.clean else f"BROKEN: {result.findings[0]}"


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
