"""Write a file with the next readings into the folder: `python more.py 100`."""

import json
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

folder = Path("incoming/readings")
folder.mkdir(parents=True, exist_ok=True)
there, wanted = len(list(folder.glob("*.jsonl"))), int(sys.argv[1]) if len(sys.argv) > 1 else 10
start = datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(hours=there)
rows = [
    {"sensor": f"s{number % 5}", "at": (start + timedelta(seconds=number)).isoformat(), "fahrenheit": 50 + number % 20}
    for number in range(wanted)
]
draft = folder / f".{there}.jsonl"
draft.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
draft.rename(folder / f"{there}.jsonl")  # the stream reads only files with their final name
print(f"{wanted} readings in {folder / f'{there}.jsonl'}")
