"""Folders of Parquet and CSV as sources; Parquet and Delta as targets."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass

from bench import data
from bench.ends import names
from bench.fingerprint import Fingerprint, of_duckdb, of_parquet
from bench.model import Contestant
from bench.place import Place
from bench.tables import Table


class ParquetSource:
    """One Parquet file."""

    def prepare(self, place: Place, table: Table) -> Mapping[str, str]:
        """Made once per scale."""
        return {names.SOURCE: str(data.lake(place)), names.SOURCE_FILE: str(data.parquet(place, table))}


class CsvSource:
    """One CSV file with a header."""

    def prepare(self, place: Place, table: Table) -> Mapping[str, str]:
        """Made once per scale."""
        return {names.SOURCE: str(data.lake(place)), names.SOURCE_FILE: str(data.csv(place, table))}


class ParquetTarget:
    """A folder of Parquet files, read back by DuckDB."""

    def reset(self, place: Place, table: Table, contestant: Contestant) -> Mapping[str, str]:
        """An empty folder."""
        folder = names.folder_of(place, contestant)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return {names.TARGET: str(folder)}

    def read(self, place: Place, table: Table, contestant: Contestant) -> Fingerprint:
        """Every Parquet file below the table's folder."""
        folder = names.folder_of(place, contestant) / names.SCHEMA / names.target_name(table)
        return of_parquet(table, f"{folder}/**/*.parquet")


class DeltaTarget(ParquetTarget):
    """A Delta table, read back through its log by delta-rs."""

    def read(self, place: Place, table: Table, contestant: Contestant) -> Fingerprint:
        """The table's newest version."""
        from deltalake import DeltaTable

        folder = names.folder_of(place, contestant) / names.SCHEMA / names.target_name(table)
        return of_duckdb(table, "found", register={"found": DeltaTable(str(folder)).to_pyarrow_dataset()})


@dataclass(frozen=True)
class HistoryTarget(ParquetTarget):
    """A Delta table with every version of its rows; the current ones are compared with the source."""

    closed: int  # versions that must have ended
    name: str = "customer_dim"

    def read(self, place: Place, table: Table, contestant: Contestant) -> Fingerprint:
        """Fingerprint the current versions; raise ValueError for another number of ended ones."""
        import duckdb
        from deltalake import DeltaTable

        found = DeltaTable(str(names.folder_of(place, contestant) / names.SCHEMA / self.name)).to_pyarrow_dataset()
        with duckdb.connect() as client:
            client.register("found", found)
            answer = client.execute(
                "SELECT count(*) FROM found WHERE NOT is_current AND valid_to IS NOT NULL"
            ).fetchone()
        if answer != (self.closed,):
            raise ValueError(f"{answer} versions have ended instead of {self.closed}")
        return of_duckdb(table, "(SELECT * FROM found WHERE is_current)", register={"found": found})
