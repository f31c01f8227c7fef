"""Tables of the first version become tables of the newest, in every database."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime, timezone

import pytest

from ematix_flow.run_log import RunRecord, from_url
from ematix_flow.run_log.sql import migrations
from tests.run_log_contract.places import Place

BEGUN = datetime(2026, 1, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize("place", ["sqlite", "duckdb", "postgres"], indirect=True)
def test_tables_of_the_first_version_are_brought_up_with_their_lines(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(migrations, "VERSIONS", migrations.VERSIONS[:1])
        with closing(from_url(place.url)) as old:
            old.record_run_record(RunRecord("r", "orders", "running", BEGUN))
    with closing(from_url(place.url)) as new:
        assert new.get_run("r") == RunRecord("r", "orders", "running", BEGUN)
        assert new.take_slot("orders", "cron:1", "a:1:1")
    with closing(from_url(place.url)) as again:
        assert [slot.slot for slot in again.slots("orders")] == ["cron:1"]


@pytest.mark.parametrize("server", ["mysql8_url", "mariadb_url"])
def test_a_migration_that_was_cut_off_in_a_database_that_commits_every_statement_goes_on(
    request: pytest.FixtureRequest, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{request.getfixturevalue(server)}?table_prefix=cut_"
    with monkeypatch.context() as before:
        before.setattr(migrations, "VERSIONS", (*migrations.VERSIONS[:1], (*migrations.VERSIONS[1][:4], "NONSENSE")))
        with pytest.raises(ValueError, match="cannot be used"):
            from_url(url)
    with closing(from_url(url)) as log:
        assert log.take_slot("orders", "cron:1", "a:1:1")
        assert set(log.last_slots()) == {"orders"}
