"""Shared by all suites: the rule for missing tools, and one hypothesis profile."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from missing import missing

hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def needs():
    """`needs("mpirun")` gives the program's path, or fails in CI and skips elsewhere."""

    def find(program: str) -> str:
        path = shutil.which(program)
        if path is None:
            missing(f"{program} is missing; `make system-deps` installs it.")
        return str(path)

    return find


# Reports have no script of their own; the copy that a browser opens gets this one, which only looks.
PROBE = """
<script>addEventListener("load", () => {
  const images = [...document.images], root = document.scrollingElement;
  const inside = e => e.getBoundingClientRect().right <= innerWidth + 1;
  document.title = JSON.stringify({
    width: innerWidth, content: root.scrollWidth, images: images.length, drawn: images.every(i => i.naturalWidth > 400),
    text: parseFloat(getComputedStyle(document.body).fontSize), tables: document.querySelectorAll("table").length,
    cells: [...document.querySelectorAll(".scroll")].every(inside), charts: document.querySelectorAll(".chart").length,
    letters: [...document.querySelectorAll("svg text")].every(e => inside(e) && e.getBoundingClientRect().height > 10),
    requests: performance.getEntriesByType("resource").filter(e => !e.name.startsWith("data:")).map(e => e.name),
  });
});</script>
"""


@pytest.fixture
def phone(needs, tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """`phone(page)`: headless Chromium opens the page at a phone's width; it measures itself and says so in its title.
    Whatever the console of the browser said is in "console"."""

    def show(page: str) -> dict[str, Any]:
        chromium, folder = needs("chromium"), tmp_path / "phone"
        folder.mkdir()
        (folder / "inner.html").write_text(page.replace("</body>", PROBE + "</body>"))
        (folder / "outer.html").write_text(
            '<iframe id=f src="inner.html" style="width:390px;height:844px;border:0"></iframe>'
            "<script>onload=()=>setTimeout(()=>{document.title=f.contentDocument.title},500)</script>"
        )
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
                 "--disable-background-networking", "--disable-component-update", "--allow-file-access-from-files",
                 "--enable-logging=stderr", f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=20000",
                 "--dump-dom"]  # fmt: skip
        command = [chromium, *flags, (folder / "outer.html").as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180)
        title = re.search(r"<title>(.*?)</title>", done.stdout)
        assert title, done.stderr[-2000:]
        return {**json.loads(title.group(1)), "console": re.findall(r"CONSOLE.*", done.stderr)}

    return show
