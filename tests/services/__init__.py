"""Real servers for the tests: started on loopback when first asked for, stopped when the run ends."""

from __future__ import annotations

from tests.services.server import Server, ServiceMissing
from tests.services.session import (
    close_session,
    open_session,
    start_azure,
    start_gcs,
    start_kafka,
    start_kinesis,
    start_mariadb,
    start_mysql8,
    start_postgres,
    start_pubsub,
    start_rabbitmq,
    start_registry,
    start_s3,
)

__all__ = [
    "Server",
    "ServiceMissing",
    "close_session",
    "open_session",
    "start_azure",
    "start_gcs",
    "start_kafka",
    "start_kinesis",
    "start_mariadb",
    "start_mysql8",
    "start_postgres",
    "start_pubsub",
    "start_rabbitmq",
    "start_registry",
    "start_s3",
]
