"""A headless Chromium, spoken to by its DevTools protocol: pages at any width, on screen and on paper."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync", "--no-zygote",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--remote-debugging-pipe", "about:blank",
]  # fmt: skip
PATIENCE = 180.0  # seconds for one answer; the machine may be busy

# What a page says of itself; "cut" are cells and words that reach beyond the page or their own box.
LOOK = """(() => {
  const images = [...document.images], root = document.scrollingElement;
  const all = what => [...document.querySelectorAll(what)];
  const inside = e => e.getBoundingClientRect().right <= innerWidth + 1 && e.getBoundingClientRect().left >= -1;
  return {
    width: innerWidth, content: root.scrollWidth, images: images.length, drawn: images.every(i => i.naturalWidth > 400),
    text: parseFloat(getComputedStyle(document.body).fontSize), tables: all("table").length,
    cells: all(".scroll").every(inside), charts: all(".chart").length,
    letters: all("svg text").every(e => inside(e) && e.getBoundingClientRect().height > 10),
    cut: all("td, th, pre, p, li, dt, dd, h1, h2, h3").filter(e => !inside(e) || e.scrollWidth > e.clientWidth + 1)
      .map(e => e.textContent.slice(0, 40)),
  };
})()"""


class Chromium:
    """One browser with one page."""

    def __init__(self, program: str, profile: Path) -> None:
        heard, says = os.pipe()
        listens, told = os.pipe()
        words = ["bash", "-c", 'exec "${@:3}" 3<&"$1" 4>&"$2"', "bash", str(heard), str(told), program, *FLAGS]
        words.insert(-1, f"--user-data-dir={profile}")
        self._process = subprocess.Popen(
            words, pass_fds=(heard, told), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(heard)
        os.close(told)
        self._says, self._hears = os.fdopen(says, "wb", 0), os.fdopen(listens, "rb", 2**16)
        self._calls, self._session, self._events = 0, "", list[dict[str, Any]]()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *error: object) -> None:
        self._says.close()  # it ends when nobody speaks to it any more
        self._hears.close()
        self._process.wait(PATIENCE)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask for one thing and wait for the answer; what happens meanwhile is kept."""
        self._calls += 1
        asked = {"id": self._calls, "method": method, "params": parameters}
        if self._session:
            asked["sessionId"] = self._session
        self._says.write(json.dumps(asked).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._calls:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._events.append(answer)

    def _next(self) -> dict[str, Any]:
        read = bytearray()
        while (letter := self._hears.read(1)) != b"\0":
            assert letter, "Chromium ended."
            read += letter
        return json.loads(read)

    def open(self, address: str, width: int = 1280, height: int = 900, media: str = "screen") -> None:
        """Load a page and wait until it stands."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        self.call("Emulation.setEmulatedMedia", media=media)
        self.call("Page.navigate", url="about:blank")  # or what the page before still asks for counts as this one's
        self.until("location.href === 'about:blank'")
        self._events.clear()
        self.call("Page.navigate", url=address)
        self.until("document.readyState === 'complete'")

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + PATIENCE
        while not self.ask(expression):
            assert time.monotonic() < end, f"never true: {expression}; the page says {self.text()[:500]}"
            time.sleep(0.05)

    def text(self) -> str:
        """What a reader sees, with single blanks."""
        return " ".join(str(self.ask("document.body.innerText")).split())

    def look(self) -> dict[str, Any]:
        """What a page says of itself."""
        return self.ask(LOOK)

    @property
    def requests(self) -> list[str]:
        """Whatever else the page asked for."""
        asked = [e["params"] for e in self._events if e.get("method") == "Network.requestWillBeSent"]
        return [one["request"]["url"] for one in asked if one.get("type") != "Document"]

    @property
    def complaints(self) -> list[str]:
        """What the browser's console says."""
        methods = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(e["params"]) for e in self._events if e.get("method") in methods]

    def picture(self, path: Path) -> Path:
        """The whole page, not only what fits on the screen."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        taken = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip={**size, "scale": 1})
        path.write_bytes(base64.b64decode(taken["data"]))
        return path

    def pdf(self, path: Path) -> Path:
        """As it is printed, on the paper that the page itself asks for."""
        self.call("Emulation.setEmulatedMedia", media="print")
        printed = self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=False)
        path.write_bytes(base64.b64decode(printed["data"]))
        return path
