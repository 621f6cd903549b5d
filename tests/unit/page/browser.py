"""Headless Chromium, driven over its own pipe: nothing but the browser has to be installed.

with Chromium() as browser:
    page = browser.open(path)
    page.click("#views a"), page.press("/"), page.evaluate("document.title")

Messages are JSON, each ended by a zero byte: those to the browser on its descriptor 3, those from
it on 4 (`--remote-debugging-pipe`).
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)
KEYS = {"/": ("Slash", 191, "/"), "Enter": ("Enter", 13, "\r"), "Tab": ("Tab", 9, ""),
        "Escape": ("Escape", 27, ""), "ArrowLeft": ("ArrowLeft", 37, ""),
        "ArrowUp": ("ArrowUp", 38, ""), "ArrowRight": ("ArrowRight", 39, ""),
        "ArrowDown": ("ArrowDown", 40, ""), "+": ("Equal", 187, "+")}  # fmt: skip
PATIENCE = 60.0


def chromium_path() -> str | None:
    """Where a Chromium is, if there is one."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Chromium:
    """A browser with a profile of its own, ended with the block."""

    def __init__(self, width: int = 1300, height: int = 900) -> None:
        path = chromium_path()
        assert path is not None, "asked for only where a browser is"
        self.profile = tempfile.mkdtemp(prefix="treadle-browser-")
        to_read, self.to = os.pipe()
        self.back, from_write = os.pipe()
        flags = [*QUIET, "--remote-debugging-pipe", f"--user-data-dir={self.profile}"]
        words = [path, *flags, f"--window-size={width},{height}", "about:blank"]
        line = f"import os, sys; os.dup2({to_read}, 3); os.dup2({from_write}, 4)"
        line += "; os.execv(sys.argv[1], sys.argv[1:])"
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", line, *words],
            pass_fds=(to_read, from_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        self.rest = b""
        self.number = 0
        self.events: list[dict[str, Any]] = []
        self.size = (width, height)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        with suppress(OSError, AssertionError):
            self.ask("Browser.close")
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.to)
        os.close(self.back)
        shutil.rmtree(self.profile, ignore_errors=True)

    def ask(self, method: str, session: str | None = None, **words: object) -> dict[str, Any]:
        """The answer of the browser; what it tells meanwhile is kept in `events`."""
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": words}
        if session is not None:
            message["sessionId"] = session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.hear()
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer["error"])
                found = answer["result"]
                assert isinstance(found, dict)
                return found
            self.events.append(answer)

    def hear(self) -> dict[str, Any]:
        """The next message."""
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.back], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser says nothing"
            part = os.read(self.back, 1 << 20)
            assert part, "the browser has ended"
            self.rest += part
        first, _, self.rest = self.rest.partition(b"\0")
        found = json.loads(first)
        assert isinstance(found, dict)
        return found

    def open(self, address: str | Path) -> Tab:
        """A tab that shows this file or address."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session)
        for room in ("Runtime", "Log", "Network", "Page"):
            tab.ask(f"{room}.enable")
        tab.ask("Emulation.setDeviceMetricsOverride", width=self.size[0], height=self.size[1],
                deviceScaleFactor=1, mobile=False)  # fmt: skip
        tab.go(address)
        return tab


class Tab:
    """One page."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self.browser = browser
        self.session = session
        self.ready_ms = 0.0

    def ask(self, method: str, **words: object) -> dict[str, Any]:
        """The answer of the browser about this page."""
        return self.browser.ask(method, self.session, **words)

    def go(self, address: str | Path) -> None:
        """Load a page and wait until it has something to read; `ready_ms` is how long it took."""
        url = address.resolve().as_uri() if isinstance(address, Path) else address
        began = time.monotonic()
        self.ask("Page.navigate", url=url)
        self.wait("location.href !== 'about:blank' && document.querySelector('main h2, main h1')")
        self.ready_ms = 1e3 * (time.monotonic() - began)

    def evaluate(self, script: str) -> Any:
        """What an expression is there."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True,
                          awaitPromise=True)  # fmt: skip
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        """Until an expression holds."""
        end = time.monotonic() + PATIENCE
        while not self.evaluate(f"Boolean({condition})"):
            assert time.monotonic() < end, f"never true: {condition}"
            time.sleep(0.01)

    def place_of(self, selector: str) -> tuple[float, float, float, float]:
        """Left, top, width and height of an element, scrolled into view."""
        one = f"document.querySelector({json.dumps(selector)})"
        box = self.evaluate(
            f"(e => {{ e.scrollIntoView({{block: 'center'}}); const b = e.getBoundingClientRect();"
            f" return [b.left, b.top, b.width, b.height]; }})({one})"
        )
        return box[0], box[1], box[2], box[3]

    def point(self, x: float, y: float) -> None:
        """Move the mouse."""
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of an element."""
        left, top, width, height = self.place_of(selector)
        x, y = left + width / 2, top + height / 2
        self.point(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, *keys: str) -> None:
        """Press keys, one after another."""
        for key in keys:
            name, number, text = KEYS[key]
            words = {"key": key, "code": name, "windowsVirtualKeyCode": number}
            self.ask(
                "Input.dispatchKeyEvent",
                type="keyDown",
                **words,
                **({"text": text} if text else {}),
            )
            self.ask("Input.dispatchKeyEvent", type="keyUp", **words)

    def type(self, text: str) -> None:
        """Write where the cursor is."""
        self.ask("Input.insertText", text=text)

    def colours(self, scheme: str) -> None:
        """Let the person prefer light or dark."""
        wish = {"name": "prefers-color-scheme", "value": scheme}
        self.ask("Emulation.setEmulatedMedia", features=[wish])

    def picture(self, path: Path) -> None:
        """Save what is seen."""
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot")["data"]))

    def print(self, path: Path) -> None:
        """Save it as it would come out of a printer."""
        path.write_bytes(base64.b64decode(self.ask("Page.printToPDF")["data"]))

    def told(self, *methods: str) -> list[dict[str, Any]]:
        """What the page told about itself, so far."""
        self.evaluate("0")
        return [
            e["params"]
            for e in self.browser.events
            if e.get("sessionId") == self.session and e["method"] in methods
        ]

    def complaints(self) -> list[str]:
        """Every word on the console and every error of a script."""
        methods = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(one) for one in self.told(*methods)]

    def requests(self) -> list[str]:
        """What was asked for besides files."""
        urls = [one["request"]["url"] for one in self.told("Network.requestWillBeSent")]
        return [url for url in urls if not url.startswith(("file:", "data:"))]
