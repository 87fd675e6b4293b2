"""Drives a headless Chromium over its debugging protocol: open, click, type, read, take a picture."""

import base64
import json
import pathlib
import shutil
import subprocess
import tempfile
import time
import urllib.request

from websockets.sync.client import connect

from harness import free_port


class Tab:
    """One page. `problems` is what its console complains about."""

    def __init__(self, url, width, height, dark, mobile):
        self.socket = connect(url, max_size=None)
        self.last_id = 0
        self.problems = []
        self.password = None
        self.call("Page.enable")
        self.call("Runtime.enable")
        self.call("Log.enable")
        self.resize(width, height, mobile)
        self.show_as(dark)

    def show_as(self, dark, reduced_motion=False):
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion",
             "value": "reduce" if reduced_motion else "no-preference"}])

    def resize(self, width, height, mobile=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=2 if mobile else 1, mobile=mobile)

    def call(self, method, **parameters):
        self.wanted = self.send(method, parameters)
        while True:
            message = json.loads(self.socket.recv(timeout=60))
            if message.get("method") == "Runtime.exceptionThrown":
                self.problems.append(message["params"]["exceptionDetails"]["text"] + " " + str(
                    message["params"]["exceptionDetails"].get("exception", {}).get("description")))
            if message.get("method") == "Log.entryAdded":
                entry = message["params"]["entry"]
                if entry["level"] == "error":
                    self.problems.append(entry["text"] + " " + entry.get("url", ""))
            if message.get("method", "").startswith("Fetch."):
                self.go_on(message["method"], message["params"])
            if message.get("id") == self.wanted:
                if "error" in message:
                    raise RuntimeError(message["error"])
                return message["result"]

    def send(self, method, parameters):
        self.last_id += 1
        self.socket.send(json.dumps({"id": self.last_id, "method": method, "params": parameters}))
        return self.last_id

    def sign_in(self, password):
        """From now on the browser's own dialog for a password is answered with this one."""
        self.password = password
        self.call("Fetch.enable", handleAuthRequests=True)

    def go_on(self, event, parameters):
        request = {"requestId": parameters["requestId"]}
        if event == "Fetch.authRequired":
            self.send("Fetch.continueWithAuth", {**request, "authChallengeResponse": {
                "response": "ProvideCredentials", "username": "me", "password": self.password}})
        else:
            self.send("Fetch.continueRequest", request)

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def run_first(self, script):
        """From now on, in each page before its own scripts."""
        self.call("Page.addScriptToEvaluateOnNewDocument", source=script)

    def run(self, script):
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    def wait(self, condition, seconds=60):
        end = time.monotonic() + seconds
        while not self.run(f"Boolean({condition})"):
            if time.monotonic() > end:
                raise AssertionError(f"waited in vain for {condition}")
            time.sleep(0.05)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key, **more):
        codes = {"Enter": 13, "Escape": 27, "Tab": 9}
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                      windowsVirtualKeyCode=codes.get(key, 0), **more,
                      **(text if kind == "keyDown" else {}))

    def picture(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(path).write_bytes(base64.b64decode(data))


class Browser(Tab):
    """A browser with a profile of its own; itself its first tab."""

    def __init__(self, width=1280, height=860, dark=False, mobile=False):
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        if program is None:
            raise RuntimeError("no chromium: run tools/setup --test")
        # Its helpers may write for a moment after it has ended.
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        port = free_port()
        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-dev-shm-usage", "--disable-background-networking",
             f"--remote-debugging-port={port}", f"--user-data-dir={self.profile.name}",
             f"--window-size={width},{height}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        page = None
        for _ in range(300):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list") as reply:
                    pages = [p for p in json.load(reply) if p["type"] == "page"]
                    page = pages[0]["webSocketDebuggerUrl"] if pages else None
            except OSError:
                pass
            if page:
                break
            time.sleep(0.1)
        if page is None:
            raise RuntimeError("chromium did not start")
        self.look = (width, height, dark, mobile)
        self.debugger = f"http://127.0.0.1:{port}"
        self.tabs = []
        super().__init__(page, *self.look)

    def new_tab(self):
        """Another tab, which shares the storage."""
        request = urllib.request.Request(self.debugger + "/json/new?about:blank", method="PUT")
        with urllib.request.urlopen(request) as reply:
            self.tabs.append(Tab(json.load(reply)["webSocketDebuggerUrl"], *self.look))
        return self.tabs[-1]

    def close(self):
        for tab in [*self.tabs, self]:
            tab.socket.close()
        self.process.terminate()
        self.process.wait(20)
        self.profile.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
