"""The pipelines of the two PostgreSQL cases, in the words of ematix-flow 1.0.0."""

from typing import Annotated

from ematix_flow import ematix, pk
from ematix_flow.types import BigInt, Date, Integer, Numeric, Text


@ematix.table(schema="bench", name="orders")
class Orders:
    o_orderkey: Annotated[BigInt, pk()]
    o_custkey: BigInt
    o_orderstatus: Text
    o_totalprice: Numeric[15, 2]
    o_orderdate: Date
    o_orderpriority: Text
    o_clerk: Text
    o_shippriority: Integer
    o_comment: Text


@ematix.pipeline(target=Orders, source_connection="origin", target_connection="goal", mode="truncate")
def pg_to_pg_truncate(source, target):
    return "SELECT * FROM orders"


@ematix.pipeline(target=Orders, source_connection="origin", target_connection="goal", mode="merge")
def pg_to_pg_merge(source, target):
    return "SELECT * FROM changed_orders"
