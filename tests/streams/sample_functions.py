"""Functions and statements that tests of SQL share: a function of five columns, a weighted mean, a pivot, a lookup."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ematix_flow import udaf, udf


@udf(args=("Float64",) * 5, returns="Float64")
def strain_of(dock: Any, capacity: Any, tilt: Any, rust: Any, years: Any) -> Any:
    """How worn a dock is, between 0 and 1."""
    columns = (dock, capacity, tilt, rust, years)
    number, room, lean, iron, old = (np.asarray(column.to_pylist(), dtype=float) for column in columns)
    used = number / (number + room * np.exp(-iron * old))
    bent = np.vectorize(math.tanh)(lean * used)
    return pa.array(1.0 - (1.0 - used) * (1.0 - bent), type=pa.float64())


@udaf(name="vwap", args=("Float64", "Float64"), returns="Float64", state=("Float64", "Float64"))
class Vwap:
    """The mean of prices, each as heavy as the quantity that was paid for with it."""

    def __init__(self) -> None:
        self.totals = np.zeros(2)

    def update_batch(self, prices: Any, quantities: Any) -> None:
        self.merge_batch(pc.multiply(prices, quantities), quantities)

    def merge_batch(self, *parts: Any) -> None:
        self.totals += [pc.sum(part, min_count=0).as_py() for part in parts]

    def state(self) -> Any:
        return tuple(pa.array([total], pa.float64()) for total in self.totals)

    def evaluate(self) -> Any:
        paid, quantity = self.totals
        return pa.array([paid / quantity if quantity else None], pa.float64())


STRAINED = """
    SELECT date_trunc('minute', seen_at) AS at_minute,
           array_agg(named_struct('dock', dock, 'bikes', bikes, 'slots', slots,
               'strain', strain_of(dock, capacity, tilt, rust, years))) AS docks
    FROM source
    GROUP BY 1
"""
LEVELS = """
    SELECT date_trunc('minute', seen_at) AS at_minute,
           array_agg(named_struct('dock', dock, 'bikes', bikes, 'slots', slots)) AS docks
    FROM source WHERE level_no = 0 AND city = 'Oslo'
    GROUP BY 1
"""
VWAP_BY_MINUTE = "SELECT vwap(price, qty) AS vwap, date_trunc('minute', at) AS at_minute FROM source GROUP BY 2"
WITH_TIERS = "SELECT e.user_id, u.tier, e._event_ts FROM source AS e LEFT JOIN users AS u USING (user_id)"
