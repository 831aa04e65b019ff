"""Opens the status page of a hub in Chromium: it says nothing on the console, asks for nothing but itself, looks again by itself, has users
by their part of the servers' time with a bar each, failures with command and reason, and takes a hostile name for text."""

import html.parser
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time

import chromium
import pymongo
from pymongo.errors import OperationFailure

cmap, hub, browser = sys.argv[1:]
HOSTILE = "<img>"


class Page(html.parser.HTMLParser):
    """The tables of a page by the heading above them, as lists of rows, and its bars."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.heading, self.tags, self.bars, self.refresh, self.text = {}, "", [], [], None, ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append(tag)
        if tag == "h2":
            self.heading = ""
        if tag == "tr":
            self.tables.setdefault(self.heading, []).append([])
        if tag in ("td", "th"):
            self.tables[self.heading][-1].append("")
        if tag == "meter":
            self.bars.append(float(attributes["value"]))
        if attributes.get("http-equiv") == "refresh":
            self.refresh = attributes["content"]

    def handle_data(self, data):
        if self.tags and self.tags[-1] == "h2":
            self.heading += data
        elif self.tags and self.tags[-1] in ("td", "th", "meter") and self.tables.get(self.heading):
            self.tables[self.heading][-1][-1] += data.strip()

    def handle_endtag(self, tag):
        if tag == "h2":
            self.tags.append("")

    def rows(self, heading):
        """The rows of a table as dictionaries."""
        names, *rows = self.tables[heading]
        return [dict(zip(names, row)) for row in rows]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(port):
    for _ in range(500):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise AssertionError(f"nobody listens at {port}")


def work(port, server_port):
    """Two users, of whom the second uses most of the server; a failure, and a database with a hostile name."""
    clients = [pymongo.MongoClient("127.0.0.1", port, username=name, password="secret", loadBalanced=True) for name in ("light", "heavy")]
    light, heavy = clients
    light.shop.orders.insert_one({"_id": 1})
    for _ in range(50):
        heavy.shop.orders.insert_many([{"text": "b" * 1000} for _ in range(200)])
    try:
        list(light.shop.orders.find({"$noSuchOperator": 1}))
        raise AssertionError("an operator that there is not was taken")
    except OperationFailure:
        pass
    # What a client names is shown where slow commands are listed.
    slow = {"failCommands": ["find"], "blockConnection": True, "blockTimeMS": 100}
    with pymongo.MongoClient("127.0.0.1", server_port, directConnection=True) as server:
        server.admin.command("configureFailPoint", "failCommand", mode={"times": 1}, data=slow)
    list(heavy[HOSTILE].orders.find())
    return clients


def main(folder):
    server_port, hub_port, status_port = free_port(), free_port(), free_port()
    users, config = folder / "users.toml", folder / "cmap-hub.toml"
    for name in ("light", "heavy"):
        subprocess.run([hub, "user", "add", name, "--users", users], input="secret\n", text=True, check=True, stdout=subprocess.DEVNULL)
    config.write_text(
        f'users = "{users}"\nupstream.uri = "mongodb://127.0.0.1:{server_port}/"\n'
        f'listen = [{{ address = "127.0.0.1:{hub_port}" }}]\nstatus.address = "127.0.0.1:{status_port}"\n'
    )
    processes = [subprocess.Popen([cmap, "serve", "--port", str(server_port)], stdout=subprocess.DEVNULL)]
    try:
        wait_for(server_port)
        processes.append(subprocess.Popen([hub, "--config", config], stderr=subprocess.DEVNULL))
        wait_for(hub_port)
        clients = work(hub_port, server_port)
        address = f"http://127.0.0.1:{status_port}/status"
        text, console, requests = chromium.open_page(browser, address, 2000)
        # It looks again after five seconds.
        _, _, later = chromium.open_page(browser, address)
        for client in clients:
            client.close()
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert not console, console
    assert all(url.startswith(f"http://127.0.0.1:{status_port}/") for url in requests), requests
    page = Page(text)
    refresh = re.fullmatch(r"\d+;url=(/status\?from=[0-9a-f-]+)", page.refresh or "")
    assert refresh and any("/status?from=" in url for url in later), (page.refresh, later)
    rows = page.rows("Users")
    assert [row["user"] for row in rows] == ["heavy", "light"], rows
    times = [float(row["at servers"]) for row in rows]
    assert times == sorted(times, reverse=True), times
    assert len(page.bars) == 2 and abs(sum(page.bars) - 100) < 0.3 and page.bars[0] > page.bars[1], page.bars
    failures = page.rows("Failures")
    assert any((row["user"], row["command"], row["code"]) == ("light", "find", "2") and row["reason"] for row in failures), failures
    assert "img" not in page.tags and HOSTILE in [row["database"] for row in page.rows("Slowest")], "a name was taken for markup"
    print(f"the hub's page: {len(rows)} users with their bars, {len(failures)} failures; no word on the console")


with tempfile.TemporaryDirectory() as place:
    main(pathlib.Path(place))
