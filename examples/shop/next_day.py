"""Apply one day of changes to the shop: customers move, orders arrive, a review is edited."""

import json
import sqlite3
from pathlib import Path

with sqlite3.connect("data/shop.db") as shop:
    shop.execute("UPDATE customers SET city = 'Lisbon', updated_at = '2026-02-02 09:00:00' WHERE customer_id <= 12")
    shop.execute(
        "INSERT INTO customers VALUES (9001, 'New.Person@example.com', 'New Person', NULL, '2026-02-02 10:00:00')"
    )

with open("data/raw/orders/2026-02.csv", "w") as file:
    file.write("order_id,customer_id,ordered_at,status,amount\n")
    for number in range(40):
        file.write(
            f"{9000 + number},{1 + number},2026-02-01 {8 + number // 6:02}:{number % 6}0:00,paid,{10 + number}.50\n"
        )

reviews = sorted(Path("data/raw/reviews").glob("*.jsonl"))
first = json.loads(reviews[0].read_text().splitlines()[0])
first.update(stars=1, text="on second thought …", written_at="2026-02-02 12:00:00")
new = {"review_id": 90001, "order_id": 9000, "stars": 5, "text": "came quickly", "written_at": "2026-02-02 13:00:00"}
Path("data/raw/reviews/2026-02.jsonl").write_text("".join(json.dumps(item) + "\n" for item in (first, new)))

print("12 customers moved, 1 is new · 40 new orders · 1 review edited, 1 new")
