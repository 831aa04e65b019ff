"""Opens the page of a trace in Chromium: it says nothing on the console, asks for nothing from the network, has a row for each wait,
says of a wait what `replay --explain` says, and takes a hostile label for text."""

import functools
import html.parser
import http.server
import json
import pathlib
import subprocess
import sys
import threading

import chromium

cmap, folder, browser = sys.argv[1:]
LABEL = "</script><img src=x onerror=document.title='taken'> <!--"


class Page(html.parser.HTMLParser):
    """What the test asks of a page: its texts by id, its rows, its intervals and its images."""

    def __init__(self, text):
        super().__init__()
        self.texts, self.rows, self.intervals, self.tags, self.open, self.title = {}, [], [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append(tag)
        if tag not in ("meta", "link", "br", "img", "input"):
            self.open.append((tag, attributes.get("id")))
        if "data-wait" in attributes:
            self.rows.append(attributes["data-wait"])
        if "data-nanoseconds" in attributes:
            self.intervals.append([int(attributes["data-nanoseconds"]), ""])

    def handle_endtag(self, tag):
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data):
        tags = [tag for tag, _ in self.open]
        for _, name in self.open:
            if name:
                self.texts[name] = self.texts.get(name, "") + data
        if tags and tags[-1] == "title":
            self.title += data
        if tags and tags[-1] == "div" and "li" in tags:
            self.intervals[-1][1] += data


def open_page(url):
    text, console, requests = chromium.open_page(browser, url)
    return Page(text), console, requests


def explained(question):
    command = [cmap, "replay", f"{folder}/incident.trace", "--explain", question]
    words = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # Why the file was written is said of the whole trace.
    words = "".join(line for line in words.splitlines(keepends=True) if not line.startswith("written because of"))
    told = json.loads(subprocess.run([*command, "--json"], check=True, capture_output=True, text=True).stdout)
    return words, told


class Silent(http.server.SimpleHTTPRequestHandler):
    """Serves a folder without a word."""

    def log_message(self, *_):
        pass


def serve_and_open(path):
    """The same from a server, to see that requests and the console are noticed at all."""
    handler = functools.partial(Silent, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            return open_page(f"http://127.0.0.1:{server.server_port}/{path}")
        finally:
            server.shutdown()


pathlib.Path(folder, "control.html").write_text("<img src=missing.png><script>console.error('seen')</script>")
_, console, requests = serve_and_open("control.html")
assert any("seen" in line for line in console), "the console would not be noticed"
assert any("missing.png" in url for url in requests), "requests would not be noticed"

address = pathlib.Path(folder, "incident.html").as_uri()
_, waits = explained("slowest:1000000")
# A check-out that got its connection within a millisecond is counted and not listed.
listed = [wait for wait in waits if wait["nanoseconds"] >= 1_000_000 or "Delivered" not in wait["wait"]["end"]]
numbers = [str(wait["wait"]["call"]) for wait in listed]
_, failures = explained("failures:1")
blamed = next(wait for wait in waits if wait["cause"] == "maxPoolSize" and LABEL in json.dumps(wait["wait"]["intervals"], ensure_ascii=False))
for wait in [waits[0], failures[0], blamed]:
    number = str(wait["wait"]["call"])
    page, console, requests = open_page(f"{address}#wait={number}")
    words, _ = explained(number)
    assert not console, console
    assert not requests, requests
    assert sorted(page.rows) == sorted(numbers), "the table has other waits"
    assert page.texts["headline"].strip() == words.splitlines()[0], page.texts["headline"]
    assert page.texts["cause"].startswith("cause: ") and f"  {page.texts['cause']}\n" in words, page.texts["cause"]
    assert sum(length for length, _ in page.intervals) == wait["nanoseconds"], "the intervals do not add up"
    assert len(page.intervals) == len(wait["wait"]["intervals"]), "intervals are missing"
    # The sentence of the cause stands once.
    assert all(f": {text.strip()}\n" in words for _, text in page.intervals if text), page.intervals
    assert all(text.strip() not in page.texts["cause"] for _, text in page.intervals if text), page.intervals
    assert "img" not in page.tags and page.title != "taken", "a label was taken for markup"
    assert page.tags.count("script") == 3, "a label has ended the data"
assert LABEL in page.texts["cause"], "the label is not there as text"
assert page.texts["brief-waits"].startswith(f"{len(waits) - len(listed)} "), "brief waits are not counted"

# As it is opened, the longest wait is explained.
page, console, _ = open_page(address)
assert not console and page.texts["headline"].strip() == explained(numbers[0])[0].splitlines()[0]
page, console, _ = open_page(f"{address}#wait=nothing%of-this-kind")
assert not console and page.texts["headline"].strip() == "Choose a wait."

# All others open, too.
others = [file for file in sorted(pathlib.Path(folder).glob("*.html")) if file.stem not in ("incident", "control")]
for other in others:
    page, console, requests = open_page(other.as_uri())
    assert not console and not requests, (other.name, console, requests)
    assert page.rows and page.intervals, f"{other.name} explains nothing"
print(f"{len(others)} other pages open; the page: {len(numbers)} waits, three of them explained as by `replay --explain`; no word on the console, no request")
