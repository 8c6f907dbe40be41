"""Plays the league and writes its table, claims, figure and how long it took into docs/league.md. Takes minutes.

    python benchmarks/league_page.py [RESULT.json]

RESULT.json is what `fedincentive league --json` printed; without it the league is played, and timed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from fedincentive.league import Judgement, figure, running

DOCS = Path(__file__).parents[1] / "docs"


def between(page: str, name: str, text: str) -> str:
    pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
    return re.sub(pattern, lambda found: f"{found[1]}\n{text}\n\n{found[2]}", page, flags=re.DOTALL)


def took(seconds: int, rows: int) -> str:
    minutes, cores = f"{seconds // 60}:{seconds % 60:02d}", len(os.sched_getaffinity(0))
    return f"The 24 games with all {rows} rows and lie searches took {minutes} minutes on {cores} cores."


def main() -> None:
    page = (DOCS / "league.md").read_text()
    if len(sys.argv) > 1:
        found = json.loads(Path(sys.argv[1]).read_text())
    else:
        began = time.monotonic()
        played = subprocess.run(["fedincentive", "league", "--json"], check=True, stdout=subprocess.PIPE, text=True)
        seconds, found = round(time.monotonic() - began), json.loads(played.stdout)
        page = between(page, "time", took(seconds, len(found["table"])))
    verdicts = [Judgement(**{**one, "where": tuple(one["where"])}) for one in found["verdicts"]]
    page = between(page, "table", running.markdown(found["table"]))
    page = between(page, "claims", "```text\n" + "\n".join(map(str, verdicts)) + "\n```")
    (DOCS / "league.md").write_text(page)
    figure.draw(found["table"], DOCS / "league.png")


if __name__ == "__main__":
    main()
