"""Lookup of transaction tokens without fencing a running producer: a group's offsets, each with its batch."""

from __future__ import annotations

from contextlib import closing

from ematix_flow.backends.kafka.client import KafkaClient, Part, parts_of
from ematix_flow.backends.kafka.transactions import TransactionToken
from ematix_flow.contract.stream import Offsets
from ematix_flow.declare.connections import KafkaConnection


def group_of_tokens(group: str | None, writer: str) -> str:
    """Return a group for tokens alone: another program that commits to the same group would overwrite the tokens."""
    return f"{group or 'ematix-flow'}/{writer}"


def last_sent(connection: KafkaConnection, group: str, writer: str, ends: Offsets) -> dict[Part, tuple[int, int]]:
    """Return the last batch of a writer in each partition of its source, and the offset that it reached.

    Brokers delete the offsets of an inactive group (`offsets.retention.minutes`): a missing token proves nothing.
    """
    with closing(KafkaClient(connection, group_of_tokens(group, writer))) as client:
        noted = client.committed_with_metadata(parts_of(ends))
    tokens = {part: (TransactionToken.read(note), offset) for part, (offset, note) in noted.items()}
    return {
        part: (token.batch, offset)
        for part, (token, offset) in tokens.items()
        if token is not None and token.writer == writer
    }


def token_groups(connection: KafkaConnection, group: str) -> list[str]:
    """Return the writers whose tokens the cluster holds for streams that read with this group."""
    with closing(KafkaClient(connection)) as client:
        names = client.groups()
    before = group_of_tokens(group, "")
    return [name.removeprefix(before) for name in names if name.startswith(before)]
