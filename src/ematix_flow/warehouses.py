"""Connections to cloud warehouses."""

from ematix_flow.declare.connections.warehouses import BigQueryConnection, RedshiftConnection, SnowflakeConnection

__all__ = ["BigQueryConnection", "RedshiftConnection", "SnowflakeConnection"]
