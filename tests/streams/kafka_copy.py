"""The pipeline from topic to topic that is killed in the tests of exactly-once delivery."""

from __future__ import annotations

import os

from ematix_flow import KafkaConnection
from ematix_flow.streaming import KafkaToKafkaEosPipeline


def main() -> None:
    """Copy what is there, in batches of some thousand rows."""
    events = KafkaConnection(name="events", bootstrap_servers=os.environ["COPY_SERVERS"], group_id="copies")
    pipeline = KafkaToKafkaEosPipeline(
        name="copy",
        source=events,
        source_query=os.environ["COPY_FROM"],
        target=events,
        target_topic=os.environ["COPY_TO"],
        transform_sql="SELECT n, n * 2 AS twice FROM source",
        checkpoint=os.environ["COPY_CHECKPOINT"],
        max_rows_per_batch=int(os.environ["COPY_ROWS"]),
    )
    print(pipeline.run(once=True).total_rows)


if __name__ == "__main__":
    main()
