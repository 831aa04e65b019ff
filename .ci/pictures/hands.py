"""Uses the page of a trace as people do, through Chromium's DevTools: by the mouse and by the keyboard."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

folder, browser = sys.argv[1:]


class Tab:
    """A page in a browser, which is spoken to by a pair of pipes."""

    def __init__(self, profile, url):
        (reader, self.to), (self.of, writer) = os.pipe(), os.pipe()
        # Chromium reads from 3 and writes to 4.
        command = f'exec "$0" "$@" 3<&{reader} 4>&{writer}'
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,1300", f"--user-data-dir={profile}", "--remote-debugging-pipe"]
        self.process = subprocess.Popen(["bash", "-c", command, browser, *options], pass_fds=[reader, writer], stderr=subprocess.DEVNULL)
        os.close(reader), os.close(writer)
        self.number, self.rest, self.session, self.noise = 0, b"", None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete' && typeof choose === 'function'", "the page does not load")

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                part = os.read(self.of, 1 << 16)
                assert part, "the browser has ended"
                self.rest += part
            line, self.rest = self.rest.split(b"\0", 1)
            answer = json.loads(line)
            if answer.get("method") in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
                self.noise.append(answer["params"])
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]

    def value(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, expression, problem):
        """What a browser does for an event, it does a little later."""
        end = time.monotonic() + 10
        while not self.value(expression):
            assert time.monotonic() < end, problem

    def press(self, key, text=None):
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def mouse(self, kind, place, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], **more)

    def click(self, place):
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, place, button="left", clickCount=1)

    def middle(self, selector):
        return self.value(f"(it => {{ it.scrollIntoView({{ block: 'center' }}); const r = it.getBoundingClientRect();"
                          f" return [r.left + r.width / 2, r.top + r.height / 2]; }})(document.querySelector({json.dumps(selector)}))")

    def close(self):
        self.call("Browser.close")
        self.process.wait(30)


with tempfile.TemporaryDirectory() as profile:
    tab = Tab(profile, pathlib.Path(folder, "incident.html").as_uri())
    length = lambda: tab.value("view.length")
    start = lambda: tab.value("view.from")

    # The keyboard, with the timeline in focus.
    tab.value("timeline.focus()")
    whole, begun = length(), start()
    tab.press("+", "+")
    assert length() < whole, "plus does not zoom in"
    before = start()
    tab.press("ArrowRight")
    assert start() > before, "right does not move"
    tab.press("0", "0")
    assert (length(), start()) == (whole, begun), "0 does not show all"
    tab.press("w", "w")
    assert length() < whole, "W does not show the wait"
    tab.press("0", "0")

    # The table: a click on a row chooses its wait, and Enter on a link does; a click on a column sorts.
    failed = tab.value("data.waits.find(wait => wait.outcome === 'failed').id")
    tab.click(tab.middle(f"tr[data-wait='{failed}'] td.failed"))
    tab.wait_for(f"chosen.id === '{failed}'", "a click on a row does not choose its wait")
    assert tab.value("at('headline').textContent").startswith(f"call {failed} ")
    other = tab.value("[...document.querySelectorAll('#waits tr')].at(-1).dataset.wait")
    tab.value(f"document.querySelector(\"tr[data-wait='{other}'] a\").focus()")
    tab.press("Enter", "\r")
    tab.wait_for(f"chosen.id === '{other}'", "Enter on a link does not choose its wait")
    for column in range(tab.value("COLUMNS.length")):
        button = f"#columns th:nth-child({column + 1}) button"
        tab.click(tab.middle(button))
        first = tab.value("at('waits').firstChild.dataset.wait")
        tab.click(tab.middle(button))
        assert tab.value("at('waits').lastChild.dataset.wait") == first or column in (2, 3, 4), "a second click does not turn the order"
    assert tab.value("document.querySelectorAll('th[aria-sort]').length") == 1

    # The timeline: a click on a wait chooses it, a drag moves, the wheel zooms, and what is under the pointer is told.
    tab.value("showAll(), scrollTo(0, 0)")
    wait = tab.value("(() => { const lane = rows.find(row => row.waits), wait = lane.waits.at(-2), r = canvas.getBoundingClientRect();"
                     " return [wait.id, r.left + x((wait.began + wait.ended) / 2), r.top + lane.top + lane.height / 2]; })()")
    tab.mouse("mouseMoved", wait[1:])
    assert not tab.value("tip.hidden") and tab.value("tip.textContent").startswith(f"call {wait[0]} "), "the wait is not told"
    tab.click(wait[1:])
    tab.wait_for(f"chosen.id === '{wait[0]}'", "a click on a wait does not choose it")
    place = tab.middle("#canvas")
    tab.mouse("mouseWheel", place, deltaX=0, deltaY=-300, modifiers=2)
    tab.wait_for(f"view.length < {whole}", "the wheel does not zoom")
    before = start()
    tab.mouse("mousePressed", place, button="left", clickCount=1)
    tab.mouse("mouseMoved", [place[0] - 80, place[1]], button="left", buttons=1)
    tab.mouse("mouseReleased", [place[0] - 80, place[1]], button="left", clickCount=1)
    assert start() > before, "a drag does not move"
    for row in tab.value("rows.map(row => row.top + row.height / 2)"):
        for part in range(40):
            tab.value(f"find(gutter + (width - gutter) * {part} / 40, {row})")

    assert not tab.noise, tab.noise
    tab.close()
print("the page obeys keyboard and mouse, and says nothing on the console")
