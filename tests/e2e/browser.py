"""A headless Chromium, controlled by its DevTools protocol over a pair of pipes, without a driver or a port."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

import pytest

from harness import PATIENCE_S, until

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def program():
    """The path of Chromium. If it is missing, the test is skipped with GB_E2E_LACKING=skip and fails otherwise."""
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if not found and os.environ.get("GB_E2E_LACKING") == "skip":
        pytest.skip("no chromium is installed on this machine")
    assert found, f"none of {PROGRAMS} is installed; ./bootstrap deps does that"
    return found


class Browser:
    def __init__(self):
        path = program()
        self.folder = tempfile.mkdtemp(prefix="gbe-chromium-")
        theirs_in, self.out = os.pipe()
        self.into, theirs_out = os.pipe()
        args = [path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                "--mute-audio", "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={self.folder}", "about:blank"]
        # The browser reads from descriptor 3 and writes to 4.
        shell = f'exec 3<&{theirs_in} 4>&{theirs_out}; exec "$@"'
        self.log = open(os.path.join(self.folder, "stderr"), "wb")
        self.process = subprocess.Popen(["bash", "-c", shell, "bash", *args], pass_fds=(theirs_in, theirs_out),
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        env={**os.environ, "HOME": self.folder})
        os.close(theirs_in)
        os.close(theirs_out)
        self.buffer, self.number, self.replies, self.pages = b"", 0, {}, {}

    def _take(self, patience_s):
        """Dispatches the received messages to their tabs; without one, waits for one."""
        if not select.select([self.into], [], [], patience_s)[0]:
            return
        data = os.read(self.into, 1 << 20)
        assert data, "the browser has ended:\n" + self.said()
        *messages, self.buffer = (self.buffer + data).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self.replies[message["id"]] = message
            elif message.get("sessionId") in self.pages:
                self.pages[message["sessionId"]].event(message["method"], message["params"])

    def said(self):
        with open(self.log.name, errors="replace") as f:
            return f.read()[-3000:]

    def call(self, method, session=None, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data):]
        end = time.monotonic() + PATIENCE_S
        while self.number not in self.replies:
            assert time.monotonic() < end, f"no answer to {method}"
            self._take(0.5)
        reply = self.replies.pop(self.number)
        assert "error" not in reply, (method, reply)
        return reply["result"]

    def pump(self):
        self._take(0)

    def page(self, url, width=1280, height=900, **more):
        return Page(self, url, width, height, **more)

    def close(self):
        try:
            self.call("Browser.close")
            self.process.wait(PATIENCE_S)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait(PATIENCE_S)
            self.log.close()
            os.close(self.out)
            os.close(self.into)
            shutil.rmtree(self.folder, ignore_errors=True)


class Page:
    """One tab with its own storage. complaints: errors of the console, exceptions, and violations of the content
    policy."""

    def __init__(self, browser, url, width, height, dark=False, phone=False):
        self.browser, self.complaints, self.urls = browser, [], []
        self.context = browser.call("Target.createBrowserContext")["browserContextId"]
        target = browser.call("Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        browser.pages[self.session] = self
        for domain in ("Page", "Runtime", "Log", "DOM", "Network"):
            self.call(domain + ".enable")
        self.size(width, height, phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme",
                                                           "value": "dark" if dark else "light"}])
        self.call("Page.addScriptToEvaluateOnNewDocument", source="window.forbidden = []; "
                  "addEventListener('securitypolicyviolation', (e) => window.forbidden.push(`${e.violatedDirective} "
                  "${e.blockedURI} ${e.sourceFile}:${e.lineNumber}`));")
        self.open(url)

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.until("the page is loaded", f"location.href.startsWith({json.dumps(url)}) && document.readyState === "
                   "'complete'")

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def event(self, method, params):
        if method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Runtime.exceptionThrown":
            d = params["exceptionDetails"]
            self.complaints.append(d.get("exception", {}).get("description", d["text"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        elif method == "Network.requestWillBeSent":
            self.urls.append(params["request"]["url"])

    def size(self, width, height, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def js(self, expression):
        """The value of an expression of JavaScript, awaited."""
        r = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True,
                      userGesture=True)
        assert "exceptionDetails" not in r, (expression, r["exceptionDetails"])
        return r["result"].get("value")

    def until(self, what, expression, patience_s=PATIENCE_S):
        return until(f"{what}: {expression}", lambda: self.js(expression), patience_s, every_s=0.05)

    def text(self, selector):
        return self.js(f"document.querySelector({json.dumps(selector)})?.innerText")

    def click(self, selector):
        """Clicks with the mouse in the middle of the element."""
        box = self.js(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: "
                      f"'center'}}); const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / "
                      f"2]; }})()")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def key(self, name, code=0, text=None, modifiers=0):
        more = {"text": text} if text else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code,
                      modifiers=modifiers, **(more if kind == "keyDown" else {}))

    def fill(self, selector, text):
        self.js(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.focus(); e.value = ''; }})()")
        self.type(text)

    def choose(self, selector, value):
        self.js(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.value = {json.dumps(value)};"
                " e.dispatchEvent(new Event('change', {bubbles: true})); })()")

    def files(self, selector, *paths):
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", files=[str(p) for p in paths], nodeId=node)

    def shot(self, path, whole=False):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))

    def faults(self):
        """All complaints so far, including violations of the content policy."""
        forbidden = self.js("window.forbidden")
        self.browser.pump()
        return self.complaints + forbidden

    def close(self):
        self.browser.call("Target.disposeBrowserContext", browserContextId=self.context)
        del self.browser.pages[self.session]
