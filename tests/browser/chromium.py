"""A headless Chromium, driven over a pipe by the DevTools protocol."""
import base64
import json
import os
import subprocess
import tempfile


class Chromium:
    """One browser with one page."""

    def __init__(self, program):
        self.profile = tempfile.TemporaryDirectory(prefix="shoal-chromium-",
                                                   ignore_cleanup_errors=True)
        to_browser, self.out = os.pipe()
        self.into, from_browser = os.pipe()
        # The browser reads descriptor 3 and writes descriptor 4.
        start = f"exec 3<&{to_browser} 4>&{from_browser}; exec \"$0\" \"$@\""
        self.process = subprocess.Popen(
            ["bash", "-c", start, program, "--headless", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
             "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}", "about:blank"],
            pass_fds=(to_browser, from_browser), stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.last_id = 0
        self.rest = b""
        self.events = []
        self.session = None
        self.is_held = False  # the mouse's button
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Accessibility", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.session = None
            self.call("Browser.close")
            self.process.wait(timeout=10)
        except (RuntimeError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.into)
        self.profile.cleanup()

    def _read(self):
        while b"\0" not in self.rest:
            part = os.read(self.into, 1 << 20)
            if not part:
                raise RuntimeError("the browser has ended")
            self.rest += part
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        """The result of a method; events that arrive before it are kept."""
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self.last_id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, method):
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._read())

    def open(self, address, width, scheme, height=900):
        """Loads a page, `width` pixels wide, in a scheme of colours: light or dark."""
        self.events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=address)
        self.wait_for("Page.loadEventFired")

    def evaluate(self, script):
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description"))
        return answer["result"].get("value")

    def mouse(self, kind, x, y, modifiers=0):
        """A move of the mouse, or the press or release of its left button."""
        is_held = kind == "Pressed" or (kind == "Moved" and self.is_held)
        self.is_held = is_held
        self.call("Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, modifiers=modifiers,
                  button="none" if kind == "Moved" and not is_held else "left",
                  buttons=1 if is_held else 0, clickCount=0 if kind == "Moved" else 1)

    def drag(self, start, end, modifiers=0):
        self.mouse("Moved", *start)
        self.mouse("Pressed", *start, modifiers)
        for part in (0.25, 0.5, 0.75, 1):
            self.mouse("Moved", *(a + part * (b - a) for a, b in zip(start, end)), modifiers)
        self.mouse("Released", *end, modifiers)

    def press(self, key):
        code, text = {"Tab": (9, ""), "Enter": (13, "\r")}[key]
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code,
                      text=text if kind == "keyDown" else "")

    def accessible_nodes(self):
        """(role, name, description) of everything that assistive programs are told of."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [(node["role"]["value"], node.get("name", {}).get("value", ""),
                 node.get("description", {}).get("value", ""))
                for node in nodes if not node["ignored"]]

    def requests(self):
        return [event["params"]["request"]["url"] for event in self.events
                if event.get("method") == "Network.requestWillBeSent"]

    def complaints(self):
        """What the browser's console says."""
        return [event["params"] for event in self.events
                if event.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown",
                                           "Runtime.consoleAPICalled")]

    def screenshot(self, path, whole=True):
        """A PNG of the page, whole or as far as the window shows it."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
