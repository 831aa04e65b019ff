"""Writers that go on while the hub before their deployment is upgraded, until standard input ends. Prints what they have met, as JSON.

Usage: writers.py URI WRITERS COLLECTION. Each writer inserts documents `WRITER-NUMBER`, changes each by `updateMany`, and reads it.
"""

import json
import sys
import threading
from collections import Counter

from pymongo import MongoClient
from pymongo.errors import PyMongoError

REST = 0.02

uri, count, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
collection = MongoClient(uri, maxPoolSize=count).upgrades[name]
ended = threading.Event()
acknowledged, errors = Counter(), Counter()


def write(writer: int) -> None:
    number = 0
    while not ended.wait(REST):
        number += 1
        document = {"_id": f"{writer}-{number}"}
        for step, run in [
            ("insert", lambda: collection.insert_one(dict(document))),
            ("update", lambda: collection.update_many(document, {"$inc": {"times": 1}})),
            ("find", lambda: collection.find_one(document)),
        ]:
            try:
                run()
                acknowledged[step, writer] += 1
            except PyMongoError as error:
                errors[f"{step}: {type(error).__name__}: {error}"[:200]] += 1


threads = [threading.Thread(target=write, args=(writer,)) for writer in range(count)]
for thread in threads:
    thread.start()
sys.stdin.read()
ended.set()
for thread in threads:
    thread.join()
totals = {step: sum(of for (other, _), of in acknowledged.items() if other == step) for step in ("insert", "update", "find")}
print(json.dumps({"acknowledged": totals, "errors": errors}))
