"""The tables that the pipelines of the benchmarks load."""

from typing import Annotated

from ematix_flow import BigInt, Date, Integer, Numeric, String, Text, Timestamp, ematix, pk
from ematix_flow.normalize import email_normalize, trim, whitespace_to_null


@ematix.table(schema="bench")
class Lineitem:
    l_orderkey: BigInt
    l_partkey: BigInt
    l_suppkey: BigInt
    l_linenumber: Integer
    l_quantity: Numeric[15, 2]
    l_extendedprice: Numeric[15, 2]
    l_discount: Numeric[15, 2]
    l_tax: Numeric[15, 2]
    l_returnflag: Text
    l_linestatus: Text
    l_shipdate: Date
    l_commitdate: Date
    l_receiptdate: Date
    l_shipinstruct: Text
    l_shipmode: Text
    l_comment: Text


@ematix.table(schema="bench")
class Orders:
    o_orderkey: BigInt
    o_custkey: BigInt
    o_orderstatus: Text
    o_totalprice: Numeric[15, 2]
    o_orderdate: Date
    o_orderpriority: Text
    o_clerk: Text
    o_shippriority: Integer
    o_comment: Text


@ematix.table(schema="bench", name="orders")
class KeyedOrders:
    o_orderkey: Annotated[BigInt, pk()]
    o_custkey: BigInt
    o_orderstatus: Text
    o_totalprice: Numeric[15, 2]
    o_orderdate: Date
    o_orderpriority: Text
    o_clerk: Text
    o_shippriority: Integer
    o_comment: Text


@ematix.table(schema="bench")
class Events:
    id: BigInt
    customer: BigInt
    kind: Text
    amount: Numeric[15, 2]
    day: Date
    note: Text


# What a message of events holds, for streams that are told and do not learn it.
EVENT_FIELDS = {
    "id": "BIGINT",
    "customer": "BIGINT",
    "kind": "STRING",
    "amount": "DECIMAL(15,2)",
    "day": "DATE",
    "note": "STRING",
}


@ematix.table(schema="bench")
class Tiny:
    id: BigInt
    city: Text
    amount: Numeric[15, 2]
    day: Date


@ematix.table(schema="bench")
class ShopOrders:
    order_id: BigInt
    customer_id: BigInt
    ordered_at: Timestamp
    status: Text
    amount: Numeric[15, 2]


@ematix.table(schema="bench")
class CustomerDim:
    customer_id: Annotated[BigInt, pk()]
    email: Annotated[String[256], email_normalize()]
    name: Annotated[String[128], trim()]
    city: Annotated[String[64] | None, whitespace_to_null()]
    updated_at: Timestamp
