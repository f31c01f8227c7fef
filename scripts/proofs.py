"""What docs/guarantees.md says of streams beyond the table, and which tests prove it; a test holds the names to tests."""

from __future__ import annotations

_PAIRS = "tests/contract/test_stream_pairs.py"
_TARGETS = "tests/contract/test_stream_targets.py"
_KILLS = "tests/crash/test_kill_streams.py::test_a_consumer_killed_at_any_point_goes_on_where_it_was"
_LAKE_KILLS = (
    "tests/streams/test_lake_kills.py::test_a_stream_killed_at_any_point_goes_on_without_loss_and_without_rows_twice"
)
_KAFKA = "tests/streams/test_kafka_sink.py"
_EVERY_CELL = (
    f"{_PAIRS}::test_a_pair_does_what_its_word_says",
    "every cell: dies before its publish, then behind it",
)

BEYOND = """\
- A `dead_letter_topic` is sent to at least once, also where the stream says `delivery="exactly_once"`: its letters are in
  no transaction, and those of a micro-batch that is done again come again. A table of dead letters has each of them once.
- The tokens of exactly-once delivery are the offsets of a consumer group, which the brokers forget when nothing happened in
  it for `offsets.retention.minutes` (seven days unless they are configured otherwise). A stream that was killed behind its
  transaction and then stood still for longer sends that one micro-batch again; one that was stopped in good order has none
  to send. `flow doctor checkpoint` says which it is.
- A target that `continue_on_target_failure` leaves behind gets what it missed later, each micro-batch under its own token.
- A stream with a window or a join keeps the word of its pair: state and outcome of a micro-batch are committed in one step
  before its targets get anything, and a try that follows finds both.
- What is promised holds for one checkpoint. A rewind reads again on purpose, under a new generation: rows come twice where
  they are appended or sent, and `flow stream rewind` asks first.
"""

PROMISES = (
    "a table of dead letters has each of them once",
    "a topic of dead letters is sent to at least once, also where the stream delivers exactly once",
    "flow doctor checkpoint compares transactions with the checkpoint",
    "a target that was left behind gets what it missed later",
    "a stream with a window or a join keeps the word of its pair",
    "a rewind reads again, and asks first",
)
"""The same in short, as tests name what they prove (`@pytest.mark.proves`); `make test-full` says which were proven."""

PROOFS = {
    "once": (
        _EVERY_CELL,
        (
            "tests/contract/test_stream_sources.py::test_everything_arrives_once_and_the_next_start_goes_on",
            "every source, over three starts",
        ),
        (f"{_TARGETS}::test_every_message_is_a_row_once_and_the_next_start_goes_on", "every target, over three starts"),
        (
            f"{_TARGETS}::test_a_generation_that_was_left_behind_writes_nothing_any_more",
            "every target: a process that was suspended during a rewind cannot publish",
        ),
        (_KILLS, "`kill -9` at five points: Kafka to PostgreSQL and Delta, RabbitMQ to PostgreSQL, files to Delta"),
        (_LAKE_KILLS, "`kill -9` at five points: files in a bucket, with the checkpoint there, and Delta to Delta"),
        (
            "tests/streams/test_rabbitmq.py::test_killed_at_every_step_nothing_is_lost_and_nothing_doubled",
            "`kill -9` at every step of the spool",
        ),
        (
            "tests/streams/test_pubsub.py::test_killed_at_every_step_nothing_is_lost_and_nothing_doubled",
            "the same of Pub/Sub",
        ),
        (
            "tests/crash/test_kill_stateful.py::test_a_stream_that_remembers_may_be_killed_at_any_point",
            "`kill -9` at six points of windows, and of joins with their state in PostgreSQL",
        ),
        (
            "tests/crash/test_restarts.py::test_a_stream_outlives_its_broker_and_its_database",
            "broker and database restart in mid-stream",
        ),
    ),
    "exactly": (
        _EVERY_CELL,
        (f"{_PAIRS}::test_exactly_once_is_at_least_once_unless_it_is_asked_for", "what the word needs"),
        (f"{_PAIRS}::test_exactly_once_is_refused_where_it_is_not_promised", "every other broker"),
        (_KILLS, "`kill -9` at five points, Kafka to Kafka"),
        (
            f"{_KAFKA}::test_a_pipeline_that_is_killed_inside_its_transactions_delivers_exactly_once",
            "`kill -9` inside the transactions",
        ),
        (
            f"{_KAFKA}::test_a_producer_that_was_thought_dead_cannot_commit_any_more",
            "a producer that wakes up late",
        ),
    ),
    "at least": (
        _EVERY_CELL,
        (f"{_KAFKA}::test_a_batch_that_is_sent_again_at_least_once_carries_the_same_ids", "ids of Kafka"),
        ("tests/streams/test_rabbitmq.py::test_a_batch_that_is_sent_again_has_the_same_ids", "ids of RabbitMQ"),
        (
            "tests/streams/test_pubsub.py::test_sent_rows_have_ordering_keys_and_ids_that_stay_the_same",
            "ids of Pub/Sub",
        ),
    ),
}
"""Words of the table, each with tests and what they show."""
