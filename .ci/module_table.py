"""A table of the modules of core: their regions, and the share that was reached.

The reports are those of `llvm-cov export -format=text -skip-functions`. A region counts once, however many copies of its code were
compiled: generic functions, other features, unit tests. It is reached if one of them was.
"""

import json
import pathlib

# The modules whose code every check-out runs through, and the share of them that has to be reached.
PROMISED = {"pool", "server", "topology", "wire", "connection"}
BAR = 90.0


def read(report):
    """The regions of each file of core, and how many were reached."""
    files = {}
    with open(report, encoding="utf-8") as text:
        exported = json.load(text)["data"][0]["files"]
    for file in exported:
        parts = pathlib.PurePath(file["filename"]).parts
        if not within_core(parts):
            continue
        name = "/".join(parts[len(parts) - parts[::-1].index("src") :])
        entries = [count for _, _, count, has_count, is_entry, is_gap in file["segments"] if has_count and is_entry and not is_gap]
        if entries:
            files[name] = (sum(count > 0 for count in entries), len(entries))
    return files


def within_core(parts):
    """Not within `fuzz/core`."""
    triples = zip(parts, parts[1:], parts[2:])
    return any((folder, source) == ("core", "src") and parent != "fuzz" for parent, folder, source in triples)


def modules(files):
    """The files of each module together."""
    together = {}
    for name, (covered, count) in files.items():
        module = name.split("/")[0].removesuffix(".rs")
        before = together.get(module, (0, 0))
        together[module] = (before[0] + covered, before[1] + count)
    return dict(sorted(together.items()))


def total(files):
    return sum(covered for covered, _ in files.values()), sum(count for _, count in files.values())


def share(pair):
    covered, count = pair
    return 100 * covered / count if count else 0.0


def table(columns):
    """Lines of a table in Markdown. `columns` has the files of each column by its title; the last one counts the regions."""
    *_, last = columns.values()
    lines = [" | ".join(["| module | regions", *columns]) + " |", "|---|---:" + "|---:" * len(columns) + "|"]
    by_module = [modules(files) for files in columns.values()]
    for module, (_, count) in modules(last).items():
        lines.append(row(f"`{module}`", count, [of.get(module, (0, 0)) for of in by_module]))
    lines.append(row("all of core", total(last)[1], [total(files) for files in columns.values()]))
    return lines


def row(name, count, pairs):
    return " | ".join([f"| {name} | {count:,}", *(f"{share(pair):.1f} %" for pair in pairs)]) + " |"


def least_covered(files):
    """Lines of the twelve files of twenty regions or more that least was reached of."""
    large = [(share(pair), pair[1], name) for name, pair in files.items() if pair[1] >= 20]
    return [f"  {percent:5.1f} % of {count:4}  {name}" for percent, count, name in sorted(large)[:12]]


def below_the_bar(files):
    return [module for module, pair in modules(files).items() if module in PROMISED and share(pair) < BAR]
