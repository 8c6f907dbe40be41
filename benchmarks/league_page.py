"""Plays the league and writes its table, claims and figure into docs/league.md. Takes minutes.

    python benchmarks/league_page.py [RESULT.json]

RESULT.json is what `fedincentive league --json` printed; without it the league is played.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from fedincentive.league import Judgement, figure, running

DOCS = Path(__file__).parents[1] / "docs"


def between(page: str, name: str, text: str) -> str:
    pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
    return re.sub(pattern, lambda found: f"{found[1]}\n{text}\n\n{found[2]}", page, flags=re.DOTALL)


def main() -> None:
    if len(sys.argv) > 1:
        printed = Path(sys.argv[1]).read_text()
    else:
        printed = subprocess.run(
            ["fedincentive", "league", "--json"], check=True, capture_output=True, text=True
        ).stdout
    found = json.loads(printed)
    verdicts = [Judgement(**{**one, "where": tuple(one["where"])}) for one in found["verdicts"]]
    page = (DOCS / "league.md").read_text()
    page = between(page, "table", running.markdown(found["table"]))
    page = between(page, "claims", "```text\n" + "\n".join(map(str, verdicts)) + "\n```")
    (DOCS / "league.md").write_text(page)
    figure.draw(found["table"], DOCS / "league.png")


if __name__ == "__main__":
    main()
