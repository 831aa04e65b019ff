"""Opens a page in Chromium, headless."""

import json
import pathlib
import subprocess
import tempfile


def open_page(browser, url, milliseconds=5000):
    """The HTML of a page as it is after its scripts have run for so long; what was said on the console; and the addresses that were asked for."""
    with tempfile.TemporaryDirectory() as profile:
        log = pathlib.Path(profile, "net.json")
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
                   "--no-first-run", "--enable-logging=stderr", f"--user-data-dir={profile}", f"--log-net-log={log}",
                   "--window-size=1400,1300", f"--virtual-time-budget={milliseconds}", "--dump-dom", url]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
        console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        text = log.read_text()
        text = text if text.rstrip().endswith("}") else text.rstrip().rstrip(",") + "]}"
        requests = {event["params"]["url"] for event in json.loads(text)["events"] if "url" in event.get("params", {})}
    return done.stdout, console, {url for url in requests if url.startswith(("http", "ws"))}
