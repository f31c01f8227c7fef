"""A backend as another package would bring it: a database in a file, with a connection class of its own.

It uses what a package may use: `contract`, `declare`, `families`, `dataplane` and the errors, and no other backend.
The folder beside this one says that the package is there; putting both on the path is all that a test does.
"""

from __future__ import annotations

from ematix_flow.contract.backend import Backend
from outside_db.connection import OutsideConnection
from outside_db.database import connect, place
from outside_db.dialect import OutsideDialect
from outside_db.source import OutsideSource
from outside_db.tables import OutsideDdl
from outside_db.target import OutsideSink

backend = Backend(
    name="outside",
    title="Outside",
    connection_types=(OutsideConnection,),
    dialect="duckdb",
    strategies=frozenset({"append", "truncate", "merge", "scd2"}),
    takes_changes=True,
    batch_source=OutsideSource,
    batch_sink=OutsideSink,
    ddl=OutsideDdl,
    client=connect,
    sql=lambda _: OutsideDialect(),
    identity=lambda connection: ("outside", str(place(connection))),
    one_writer=True,
)
