"""A real Chromium, driven over its debugging protocol by plain calls.

Every request a page makes and every dialog it opens is on record, so that a test can say that
there were none. Nothing but loopback can be reached: other names do not resolve.
"""

import asyncio
import base64
import itertools
import json
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-extensions --disable-dev-shm-usage --hide-scrollbars "
    "--force-color-profile=srgb --remote-debugging-port=0 --remote-allow-origins=* --disable-features=Translate "
    "--host-resolver-rules=MAP+*+~NOTFOUND,EXCLUDE+127.0.0.1,EXCLUDE+localhost"
)
KEYS = {"Enter": 13, "Escape": 27, "ArrowRight": 39, "ArrowLeft": 37, "End": 35, "Home": 36}


class Browser:
    """One Chromium with a profile of its own; `page()` opens a tab in it."""

    def __init__(self):
        program = next((path for name in NAMES if (path := shutil.which(name))), None)
        assert program, "no Chromium: run tools/install_browser.sh (make test does)"
        self._profile = tempfile.TemporaryDirectory(
            prefix="flightlog-chromium-", ignore_cleanup_errors=True
        )
        flags = [flag.replace("+", " ") for flag in FLAGS.split()]
        self._process = subprocess.Popen(
            [program, *flags, f"--user-data-dir={self._profile.name}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._wire = _Wire(self._loop)
        self._wire.run(self._wire.connect(self._address()))

    def page(self, width=1280, height=900, *, dark=False):
        """Open a tab in a session of its own, without cookies."""
        context = self._wire.ask("Target.createBrowserContext")["browserContextId"]
        target = self._wire.ask(
            "Target.createTarget", {"url": "about:blank", "browserContextId": context}
        )["targetId"]
        attached = self._wire.ask("Target.attachToTarget", {"targetId": target, "flatten": True})
        return Page(self._wire, attached["sessionId"], (width, height), dark)

    def close(self):
        self._wire.run(self._wire.close())
        self._process.terminate()
        self._process.wait(20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()
        self._profile.cleanup()

    def _address(self):
        port_file = Path(self._profile.name) / "DevToolsActivePort"
        end = time.monotonic() + 30
        while time.monotonic() < end:
            lines = port_file.read_text().split() if port_file.exists() else []
            if len(lines) == 2:
                return f"http://127.0.0.1:{lines[0]}{lines[1]}"
            time.sleep(0.05)
        raise AssertionError("Chromium did not start")


class Page:
    """One tab: go somewhere, press keys, ask the page something, look at what it did."""

    def __init__(self, wire, session, size, dark):
        self._wire, self._session = wire, session
        self.requests, self.dialogs, self.complaints = [], [], []
        wire.listeners[session] = self._hear
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")
        self.resize(*size)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.ask("Emulation.setEmulatedMedia", {"features": scheme})

    def ask(self, method, given=None):
        return self._wire.ask(method, given, self._session)

    def resize(self, width, height):
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500},
        )

    def go(self, url):
        self.js("window.left = true")
        answer = self.ask("Page.navigate", {"url": url})
        assert "errorText" not in answer, answer
        same_document = "loaderId" not in answer
        self.until(
            f"document.readyState === 'complete' && ({json.dumps(same_document)} || !window.left)",
            30,
        )

    def js(self, expression):
        """Evaluate in the page; promises are waited for."""
        given = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        answer = self.ask("Runtime.evaluate", given)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression, limit_s=15):
        """Wait until the page says yes."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            try:
                if self.js(f"!!({expression})"):
                    return True
            except AssertionError:
                pass  # the page was just replaced by another
            time.sleep(0.02)
        raise AssertionError(f"not within {limit_s} s: {expression}")

    def key(self, key):
        code = KEYS.get(key, ord(key[0].upper()))
        text = "\r" if key == "Enter" else key if len(key) == 1 else ""
        given = {"key": key, "windowsVirtualKeyCode": code, "text": text, "unmodifiedText": text}
        self.ask("Input.dispatchKeyEvent", {"type": "keyDown", **given})
        self.ask("Input.dispatchKeyEvent", {"type": "keyUp", **given})

    def type(self, text):
        for character in text:
            self.key(character)

    def click(self, selector):
        self.js(f"document.querySelector({json.dumps(selector)}).click()")

    def picture(self, path, *, whole=False):
        Path(path).write_bytes(self.screenshot(whole=whole))

    def screenshot(self, *, whole=False):
        """What is on the screen, as PNG."""
        shot = self.ask("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": whole})
        return base64.b64decode(shot["data"])

    def outside(self):
        """Requests that went, or tried to go, anywhere but our own server."""
        own = (
            "http://127.0.0.1:",
            "http://localhost:",
            "http://[::1]:",
            "data:",
            "about:",
            "file:",
        )
        return [url for url in self.requests if not url.startswith(own)]

    def _hear(self, method, given):
        if method == "Network.requestWillBeSent":
            self.requests.append(given["request"]["url"])
        elif method == "Page.javascriptDialogOpening":
            self.dialogs.append(given["message"])
            self._wire.tell("Page.handleJavaScriptDialog", {"accept": False}, self._session)
        elif method == "Log.entryAdded" and given["entry"]["level"] == "error":
            self.complaints.append(given["entry"]["text"] + " " + given["entry"].get("url", ""))
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(given["exceptionDetails"])[:500])


class _Wire:
    """The debugging protocol: numbered questions, answers, and events by session."""

    def __init__(self, loop):
        self._loop = loop
        self._numbers = itertools.count(1)
        self._answers = {}
        self.listeners = {}

    def run(self, work, limit_s=60):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(limit_s)

    async def connect(self, address):
        self._client = aiohttp.ClientSession()
        self._socket = await self._client.ws_connect(address, max_msg_size=0)
        self._reader = asyncio.create_task(self._read())

    async def close(self):
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        await self._socket.close()
        await self._client.close()

    def ask(self, method, given=None, session=None):
        return self.run(self._ask(method, given, session))

    def tell(self, method, given, session):
        self._task = asyncio.ensure_future(self._ask(method, given, session), loop=self._loop)

    async def _ask(self, method, given, session):
        number = next(self._numbers)
        answer = self._answers[number] = self._loop.create_future()
        message = {"id": number, "method": method, "params": given or {}}
        await self._socket.send_json(message | ({"sessionId": session} if session else {}))
        return await answer

    async def _read(self):
        async for message in self._socket:
            reply = json.loads(message.data)
            if "id" in reply:
                answer = self._answers.pop(reply["id"])
                if "error" in reply:
                    answer.set_exception(AssertionError(reply["error"]["message"]))
                else:
                    answer.set_result(reply["result"])
            elif reply.get("sessionId") in self.listeners:
                self.listeners[reply["sessionId"]](reply["method"], reply["params"])
