"""A headless Chromium driven over the DevTools protocol, as far as page tests need it."""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
PATIENCE = 30.0


def require(program: str | None, what: str) -> str:
    """``program``, or a skipped test without it."""
    if program is None:
        pytest.skip(f"{what} is not installed")
    return program


def find_browser() -> str:
    """The path of a Chromium."""
    return require(next((path for path in map(shutil.which, NAMES) if path), None), "Chromium")


class Tab:
    """One page: commands, and everything that it wrote to the console, threw or asked from the network."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self.ids = itertools.count(1)
        self.messages: list[str] = []
        self.requests: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a protocol command."""
        number = next(self.ids)
        self.socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("id") == number:
                assert "error" not in message, message["error"]
                return dict(message["result"])
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.consoleAPICalled":
            self.messages.append(" ".join(str(arg.get("value", arg.get("description"))) for arg in params["args"]))
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.messages.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded":
            self.messages.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def js(self, expression: str) -> Any:
        """The value of a JavaScript expression; promises are awaited."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until ``expression`` is true."""
        deadline = time.monotonic() + PATIENCE
        while not self.js(expression):
            assert time.monotonic() < deadline, f"never true: {expression}; console: {self.messages}"
            time.sleep(0.03)

    def open(self, path: Path) -> None:
        """Open a report and wait until all of it is drawn."""
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait("document.documentElement?.dataset.ready === 'true'")

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """The size of the window, and the colour scheme that the user prefers."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """A mouse event such as ``mouseMoved`` at a place of the window."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x: float, y: float) -> None:
        """A click with the left button."""
        self.mouse("mouseMoved", x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def centre(self, selector: str) -> tuple[float, float]:
        """The middle of an element, scrolled into view."""
        box = self.js(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        return box[0], box[1]

    def click_on(self, selector: str) -> None:
        """A click on the middle of an element."""
        self.click(*self.centre(selector))

    def key(self, key: str, text: str = "") -> None:
        """One key, pressed and released."""
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Write what is seen, or the whole page, as PNG."""
        result = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(result["data"]))

    def pdf(self, path: Path) -> None:
        """Print to ``path``."""
        result = self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        path.write_bytes(base64.b64decode(result["data"]))


@contextmanager
def browser(profile: Path) -> Iterator[Tab]:
    """A browser with one empty page and a profile of its own in the folder ``profile``."""
    require("found" if find_spec("websocket") else None, "websocket-client")
    from websocket import create_connection

    command = [find_browser(), *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        port = _port(profile, process)
        with closing(create_connection(_page_socket(port), timeout=PATIENCE, suppress_origin=True)) as socket:
            yield Tab(socket)
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE)


def _port(profile: Path, process: subprocess.Popen[bytes]) -> int:
    """The port that Chromium says it listens on."""
    deadline = time.monotonic() + PATIENCE
    told = profile / "DevToolsActivePort"
    while time.monotonic() < deadline and process.poll() is None:
        if told.exists() and (lines := told.read_text().splitlines()):
            return int(lines[0])
        time.sleep(0.05)
    raise RuntimeError(f"Chromium did not start (exit status {process.poll()})")


def _page_socket(port: int) -> str:
    from http.client import HTTPConnection

    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with closing(HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
            connection.request("GET", "/json/list")
            pages = [page for page in json.loads(connection.getresponse().read()) if page["type"] == "page"]
        if pages:
            return str(pages[0]["webSocketDebuggerUrl"])
        time.sleep(0.05)
    raise RuntimeError("Chromium opened no page")
