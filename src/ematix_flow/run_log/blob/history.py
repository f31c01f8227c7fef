"""Run records, last outcomes and attempts as objects."""

from __future__ import annotations

from datetime import datetime
from itertools import islice

from ematix_flow.run_log.blob.claims import require_leadership
from ematix_flow.run_log.blob.keys import RunKeys, encode, newest_first_number
from ematix_flow.run_log.blob.objects import Document, Objects
from ematix_flow.run_log.protocol import only_match
from ematix_flow.run_log.records import AttemptState, Change, LastRun, RecordFate, RunRecord, from_text, to_text
from ematix_flow.run_log.requests import RunRequests
from ematix_flow.storage.object_store import in_parallel

_SEVERAL = 6


class BlobHistory(RunRequests):
    """The run records and requests of a run log in an object store."""

    _objects: Objects

    def record_run(self, name: str, ts: datetime, success: bool) -> None:
        """Record the last outcome of a pipeline."""
        document = {"pipeline_name": name, "last_run_at": to_text(ts), "success": success}
        self._objects.write(f"run_log/{encode(name)}.json", document)

    def last_runs(self) -> dict[str, LastRun]:
        """Return the last outcome of every pipeline."""
        documents = self._objects.read_all(self._objects.keys("run_log/"))
        return {
            document["pipeline_name"]: LastRun(from_text(document["last_run_at"]), bool(document["success"]))
            for document in documents
        }

    def record_attempt(self, name: str, state: AttemptState) -> None:
        """Record the number of consecutive failures of a pipeline."""
        document = {
            "pipeline_name": name,
            "attempt_count": state.attempt_count,
            "last_attempt_at": to_text(state.last_attempt_at),
            "gave_up": state.gave_up,
        }
        self._objects.write(f"attempt_state/{encode(name)}.json", document)

    def clear_attempt_state(self, name: str) -> None:
        """Delete the recorded failures of a pipeline."""
        self._objects.delete(f"attempt_state/{encode(name)}.json")

    def attempt_states(self) -> dict[str, AttemptState]:
        """Return the consecutive failures of every pipeline that has any."""
        documents = self._objects.read_all(self._objects.keys("attempt_state/"))
        return {
            document["pipeline_name"]: AttemptState(
                document["attempt_count"], from_text(document["last_attempt_at"]), bool(document["gave_up"])
            )
            for document in documents
        }

    def record_run_record(self, record: RunRecord) -> None:
        """Insert or replace the record of a run."""
        keys, known = RunKeys.of(record), self._keys_of(record.run_id)
        self._objects.write(keys.record, record.to_detail_dict())
        if keys not in known:
            self._objects.mark(keys.id, keys.all)
        if record.status == "requested":
            self._objects.mark(keys.requested)
        elif keys in known:
            self._objects.delete(keys.requested)
        for old in known:
            if old != keys:
                self._remove(old)

    def offer_run(self, record: RunRecord, *, leader: str | None = None) -> bool:
        """Insert a run unless its id is known; return True to one caller only. Raise LeaseLost for a stale leader."""
        keys = RunKeys.of(record)
        require_leadership(self._objects, leader)
        if any(known != keys for known in self._keys_of(record.run_id)):
            return False
        # The index keys come first: a record without them could never be found.
        self._objects.mark(keys.id, keys.all, *([keys.requested] if record.status == "requested" else []))
        return self._objects.create(keys.record, record.to_detail_dict())

    def list_runs(
        self, *, pipeline: str | None = None, status: str | None = None, limit: int = 50, offset: int = 0
    ) -> tuple[list[RunRecord], int]:
        """Return a page of runs, the newest first, and the number of all; a filter by status reads every record."""
        start, end = max(offset, 0), max(offset, 0) + max(limit, 0)
        if status is None:
            keys = self._record_keys("all/", pipeline)
            return self._records(keys[start:end]), len(keys)
        keys = self._record_keys("requested/" if status == "requested" else "all/", pipeline)
        wanted = [record for record in self._records(keys) if record.status == status]
        return wanted[start:end], len(wanted)

    def latest_runs(self) -> dict[str, RunRecord]:
        """Return the newest run of every pipeline, without runs that are only requested."""
        newest = in_parallel(self._newest, self._objects.folders("runs/"))
        return {record.pipeline: record for record in newest if record is not None}

    def retire_runs(self, before: datetime) -> int:
        """Delete ended runs that began before a moment, except the newest of each pipeline; return how many."""
        newest = {RunKeys.of(record).record for record in self.latest_runs().values()}
        edge = newest_first_number(before)
        keys = [keys for keys in map(RunKeys.by_time, self._objects.keys("all/")) if keys.back > edge]

        def retired(keys: RunKeys) -> bool:
            document = self._objects.read(keys.record) if keys.record not in newest else None
            if document is None or not document.get("finished_at"):
                return False
            self._remove(keys)
            return True

        return sum(in_parallel(retired, keys))

    def get_run(self, run_id: str) -> RunRecord | None:
        """Return the run with that id or unique id prefix; None if there is none."""
        exact = self._keys_of(run_id)
        run_keys = exact[:1] or list(islice(map(RunKeys.by_id, self._objects.keys(f"ids/{encode(run_id)}")), _SEVERAL))
        unique = {keys.run_id: keys for keys in reversed(run_keys)}
        return only_match(run_id, self._records([keys.record for keys in unique.values()]))

    def change_run(self, run_id: str, change: Change, *, leader: str | None = None) -> bool:
        """Atomically replace or delete the record with exactly that id; return False if it stays unchanged."""
        require_leadership(self._objects, leader)
        known = self._keys_of(run_id)
        if not known:
            return False
        removed = False

        def changed(data: Document | None) -> Document | None:
            nonlocal removed
            result = change(RunRecord.from_dict(data)) if data is not None else RecordFate.KEPT
            removed = result is RecordFate.REMOVED
            if isinstance(result, RunRecord):
                return result.to_detail_dict()
            return {**data, "status": "cancelled"} if removed and data is not None else None

        after = self._objects.change(known[0].record, changed)
        if after is None:
            return False
        if removed:
            self._remove(known[0])
        elif after["status"] != "requested":
            self._objects.delete(known[0].requested)
        return True

    def _record_keys(self, listing: str, pipeline: str | None) -> list[str]:
        """Return the keys of records, the newest first."""
        if listing == "all/" and pipeline is not None:
            return list(self._objects.keys(f"runs/{encode(pipeline)}/"))
        run_keys = map(RunKeys.by_time, self._objects.keys(listing))
        return [keys.record for keys in run_keys if pipeline is None or keys.pipeline == encode(pipeline)]

    def _records(self, keys: list[str]) -> list[RunRecord]:
        return [RunRecord.from_dict(document) for document in self._objects.read_all(keys)]

    def _newest(self, folder: str) -> RunRecord | None:
        for key in self._objects.keys(folder, page=5):
            document = self._objects.read(key)
            if document is not None and document["status"] != "requested":
                return RunRecord.from_dict(document)
        return None

    def _keys_of(self, run_id: str) -> list[RunKeys]:
        """Return the keys of the run with exactly this id, the latest first: an interrupted move leaves several."""
        return [RunKeys.by_id(key) for key in self._objects.keys(f"ids/{encode(run_id)}.", page=5)]

    def _remove(self, keys: RunKeys) -> None:
        self._objects.delete(keys.record, keys.all, keys.requested, keys.id)
