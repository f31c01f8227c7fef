"""`flow init`: a project that can be read, listed and run, and nothing overwritten."""

from __future__ import annotations

import csv
import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any


def contents(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_it_says_what_it_wrote_and_what_to_type_next(flow: Any, project: Path) -> None:
    answer = flow("init", "shop")
    assert answer.code == 0
    assert [line.split()[0] for line in answer.out.splitlines()] == [
        "shop/pipelines.py", "shop/.ematix-flow.toml", "shop/data/", "shop/README.md",
    ]  # fmt: skip
    assert answer.err == "next: cd shop && flow run --module pipelines --all\n"


def test_the_same_project_is_written_every_time(flow: Any, project: Path) -> None:
    flow("init", "one")
    flow("init", "two")
    one, two = contents(project / "one"), contents(project / "two")
    assert one == two
    assert {"pipelines.py", ".ematix-flow.toml", "README.md", ".gitignore", "data/shop.db"} <= set(one)


def test_the_shop_has_customers_orders_and_reviews_that_belong_together(flow: Any, project: Path) -> None:
    flow("init", "shop")
    data = project / "shop" / "data"
    with closing(sqlite3.connect(data / "shop.db")) as shop:
        customers = {number for (number,) in shop.execute("SELECT customer_id FROM customers")}
    orders = [row for path in sorted((data / "raw/orders").glob("*.csv")) for row in csv.DictReader(path.open())]
    reviews = [json.loads(line) for line in (data / "raw/reviews/2026-01.jsonl").read_text().splitlines()]
    assert (len(customers), len(orders), len(reviews)) == (500, 4000, 300)
    assert {int(order["customer_id"]) for order in orders} <= customers
    assert max(order["ordered_at"] for order in orders) == "2026-01-31 23:59:00"
    assert len({order["ordered_at"][:10] for order in orders}) == 31
    assert {review["order_id"] for review in reviews} <= {int(order["order_id"]) for order in orders}


def test_the_project_declares_its_three_pipelines_and_its_connections_are_fine(
    flow: Any, project: Path, monkeypatch: Any
) -> None:
    flow("init", "shop")
    monkeypatch.chdir(project / "shop")
    listed = {entry["name"]: entry for entry in flow("list", "--module", "pipelines", "--json").document}
    assert {name: entry["targets"][0]["mode"] for name, entry in listed.items()} == {
        "daily_revenue": "merge",
        "load_orders": "append",
        "sync_customers": "scd2",
    }
    assert listed["daily_revenue"]["depends_on"] == ["load_orders"]
    checked = flow("connections", "check", "--json")
    assert {report["name"]: report["status"] for report in checked.document} == dict.fromkeys(
        ("files", "lake", "reviews", "shop", "warehouse"), "ok"
    )


def test_files_that_are_there_stay_unless_forced(flow: Any, project: Path) -> None:
    (project / "pipelines.py").write_text("mine = True\n")
    answer = flow("init", ".")
    assert answer.code == 2
    assert "already has pipelines.py" in answer.err
    assert "--force" in answer.err
    assert contents(project) == contents(project) | {"pipelines.py": hashlib.sha256(b"mine = True\n").hexdigest()}
    forced = flow("init", ".", "--force")
    assert forced.code == 0
    assert forced.err == "next: flow run --module pipelines --all\n"
    assert "ematix" in (project / "pipelines.py").read_text()


def test_other_files_in_the_folder_do_no_harm(flow: Any, project: Path) -> None:
    (project / "notes.txt").write_text("keep me")
    assert flow("init", ".").code == 0
    assert (project / "notes.txt").read_text() == "keep me"


def test_a_place_that_cannot_be_written_is_one_sentence(flow: Any, project: Path) -> None:
    (project / "file").write_text("")
    answer = flow("init", "file/shop")
    assert answer.code == 5
    assert "file/shop cannot be written" in answer.err
