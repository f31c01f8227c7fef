"""Write the next of three files of messages, as a connector would send them; the third contains a repeated change."""

import json
from pathlib import Path

FOLDER = Path("incoming/customers")
START = 1_760_000_000_000


def event(op, at, after=None, before=None):
    """Return the change event of a customer, `at` seconds after the start."""
    source = {"connector": "postgresql", "table": "customers", "ts_ms": START + 1000 * at, "lsn": 1000 + at}
    return {"op": op, "before": before, "after": after, "source": source}


def customer(number, name, city, at):
    return {"id": number, "name": name, "city": city, "changed_at": f"2025-10-09T08:53:{20 + at:02}Z"}


CHAPTERS = [
    [
        event("r", 0, customer(1, "Ada", "London", 0)),
        event("r", 0, customer(2, "Blaise", "Paris", 0)),
        event("c", 1, customer(3, "Carl", "Göttingen", 1)),
    ],
    [
        event("u", 2, customer(2, "Blaise", "Rouen", 2), before={"id": 2}),
        event("u", 3, customer(2, "Blaise", "Clermont", 3), before={"id": 2}),
        event("d", 4, before={"id": 1}),
    ],
    [
        event("u", 2, customer(2, "Blaise", "Rouen", 2), before={"id": 2}),
        event("c", 5, customer(1, "Ada", "Turin", 5)),
    ],
]


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    number = len(list(FOLDER.glob("*.jsonl")))
    if number == len(CHAPTERS):
        raise SystemExit("there are no more chapters")
    part = FOLDER / f".{number}.part"  # the stream reads only files with their final name
    part.write_text("".join(json.dumps(one) + "\n" for one in CHAPTERS[number]), encoding="utf-8")
    part.rename(FOLDER / f"{number}.jsonl")
    print(f"chapter {number + 1}: {len(CHAPTERS[number])} changes")


main()
