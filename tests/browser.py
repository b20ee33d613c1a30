"""A real browser for tests: Chromium without a window, spoken to over a pipe, so that nothing but it is needed."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe")
PATIENCE = 30.0


class Browser:
    """One page of a browser. `said` has what the page complained about: errors, warnings, what could not be loaded."""

    def __init__(self, width, height=900, dark=False):
        found = shutil.which("chromium") or shutil.which("chromium-browser")
        if found is None:
            pytest.skip("no chromium on the PATH: apt install chromium")
        self.profile = tempfile.mkdtemp(prefix="pclf-browser-")
        theirs_in, self.out = os.pipe()
        self.into, theirs_out = os.pipe()

        def as_three_and_four():
            os.dup2(theirs_in, 13)                       # first out of the way: either may be 3 or 4 already
            os.dup2(theirs_out, 14)
            os.dup2(13, 3)
            os.dup2(14, 4)

        self.process = subprocess.Popen([found, *FLAGS, f"--user-data-dir={self.profile}", "about:blank"],
                                        preexec_fn=as_three_and_four, close_fds=False, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.buffer, self.number, self.said, self.session = b"", 0, [], None
        targets = self.send("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self.session = self.send("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for room in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{room}.enable")
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)
        self.send("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.wait()
        os.close(self.out)
        os.close(self.into)
        shutil.rmtree(self.profile, ignore_errors=True)

    def send(self, method, **params):
        """Ask the browser, and return its answer."""
        self.number += 1
        mine = {"id": self.number, "method": method, "params": params}
        if self.session is not None:
            mine["sessionId"] = self.session
        os.write(self.out, json.dumps(mine).encode() + b"\0")
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            answer = self._next()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]
        raise TimeoutError(method)

    def open(self, url):
        self.send("Page.navigate", url=url)
        self.wait("location.href !== 'about:blank' && document.readyState === 'complete'")

    def run(self, script):
        """What a piece of JavaScript returns, once it is there."""
        answer = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, script, patience=PATIENCE):
        """Until something is true."""
        until = time.monotonic() + patience
        while not (found := self.run(script)):
            assert time.monotonic() < until, f"never came true: {script}"
            time.sleep(0.05)
        return found

    def press(self, key, text=None):
        codes = {"ArrowDown": 40, "ArrowRight": 39, "Enter": 13, "Tab": 9, "Escape": 27, "Space": 32}
        named = {"key": " " if key == "Space" else key, "code": key, "windowsVirtualKeyCode": codes.get(key, 0)}
        made = text or {"Enter": "\r", "Space": " "}.get(key)
        self.send("Input.dispatchKeyEvent", type="keyDown" if made else "rawKeyDown", **named,
                  **({"text": made} if made else {}))
        self.send("Input.dispatchKeyEvent", type="keyUp", **named)

    def type(self, text):
        self.send("Input.insertText", text=text)

    def picture(self, path, whole=True):
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(shot["data"]))

    def _next(self):
        while b"\0" not in self.buffer:
            piece = os.read(self.into, 1 << 16)
            assert piece, "the browser has gone"
            self.buffer += piece
        line, _, self.buffer = self.buffer.partition(b"\0")
        message = json.loads(line)
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.said.append(str(params["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.said.append(str(params["args"])[:500])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.said.append(params["entry"]["text"])
        elif method == "Network.loadingFailed" and not params.get("canceled"):
            self.said.append(params["errorText"])
        return message
