"""The words of the samples: what the twins of this folder call a thing, and what the product's documents call it.

Tests speak the twins' words. `worded` turns a text of theirs, say a query, into the words of the samples that are run.
"""

from __future__ import annotations

import re

from tests.e2e import documents

PRINTED = {
    # Schemas, tables and their columns
    "intake": "raw", "reporting": "analytics", "telemetry": "marketdata",
    "rides": "events", "ride_id": "event_id", "station": "name", "docked_at": "received_at",
    "members": "customers", "member_id": "customer_id", "mail": "email", "nick": "name", "changed_at": "updated_at",
    "member_card": "customer_dim", "MemberCard": "CustomerDim", "String[120]": "String[256]",
    "member_vault": "customer_archive", "MemberVault": "CustomerArchive", "RidesPerDay": "DailyRollups",
    "new_label": "target_col", "old_label": "source_col",
    # Pipelines, and what runs after them
    "bike_flows": "my_pipelines", "load_rides": "ingest_events", "collect": "ingest", "renew_members": "sync_customers",
    "renew": "sync", "rides_by_day": "daily_rollups", "rebuild_board": "update_mart",
    # Connections and their addresses
    "depot": "warehouse", "depot_two": "warehouse_2", "field_db": "raw_db", "ride_bus": "kafka_prod",
    "ride_bus_avro": "kafka_avro", "grade_bus": "kafka_quotes", "ride_shapes": "sr_prod", "cellar": "lake", "bay": "s3",
    "postgres://127.0.0.1/depot": "postgres://localhost/wh", "postgres://127.0.0.1/rides_db": "postgres://localhost/mydb",
    "postgres://127.0.0.1/remembered": "postgres://localhost/ematix_state", "127.0.0.1:19092": "localhost:9092",
    "http://127.0.0.1:18081": "http://localhost:8081", "https://objects.bikes.test": "https://s3.amazonaws.com",
    "9464": "9100", "pedal": "alice", "hush": "secret", "bike-archive": "ematix-archive", "bike-readers": "ematix-flow",
    "DEPOT_URL": "WAREHOUSE_URL", "DEPOT_DSN": "WAREHOUSE_DSN", "DEPOT_PASSWORD": "WAREHOUSE_PASSWORD",
    "FIELD_PASSWORD": "RAW_DB_PASSWORD", "RIDE_BUS": "KAFKA_BOOTSTRAP", "RIDE_BUS_USER": "KAFKA_USER",
    "RIDE_BUS_PASS": "KAFKA_PASS", "SHAPES_URL": "SR_URL", "CELLAR_KEY": "AWS_ACCESS_KEY_ID", "CELLAR_SECRET": "AWS_SECRET_ACCESS_KEY",
    # Streams
    "rides.toml": "pipeline.toml", "rides-to-depot": "events-to-pg", "rides_to_depot": "events_to_pg",
    "rides_both_ways": "events_fanout", "rides/kept": "events/raw", "rides/table": "events/csv",
    "rides-refused": "events-failed", "rider_id": "user_id", "stop": "page", "remark": "payload",
    "rides_with_plans": "events_clean", "riders": "users", "rider_plans": "dim_users", "plan": "tier",
    "rides_by_minute": "events_per_min", "how_many": "n", "outings": "user_sessions", "stops_seen": "events",
    "first_stop": "entry_page", "last_stop": "exit_page", "pickups": "orders", "dropoffs": "payments", "trip_id": "order_id",
    "left_trip_id": "left_order_id", "trips": "orders_with_payments", "office.public.members": "dbserver1.public.customers",
    "copy_members": "mirror_customers", "member_copy": "customer_mirror", "note": "process",
    # Streams with functions
    "levels/incoming": "raw/options", "dock_levels": "option_chain_snapshots", "at_minute": "minute",
    "docks_json": "strikes_json", "seen_at": "ts", "city": "underlying", "Oslo": "SPXW", "level_no": "days_to_expiry",
    "dock": "strike", "bikes": "bid", "slots": "ask", "capacity": "spot", "tilt": "vol", "rust": "rate", "years": "expiry",
    "strain": "delta", "strain_of": "bs_call_delta", "grades": "quotes", "grade": "price", "headcount": "qty",
    "weighted_grade": "vwap", "grade_by_minute": "vwap_per_minute",
}  # fmt: skip
"""The word of the documents for every word of the twins that a test mentions."""
_LONGEST_FIRST = sorted(PRINTED, key=len, reverse=True)
_WORD = re.compile(rf"(?<!\w)(?:{'|'.join(re.escape(word) for word in _LONGEST_FIRST)})(?!\w)")


def worded(text: str) -> str:
    """A text of a test in the words of the samples that are run: unchanged with the twins."""
    return text if documents.FOLDER == documents.TWINS else _WORD.sub(lambda found: PRINTED[found[0]], text)
