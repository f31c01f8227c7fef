"""Transforms of a whole batch before it is loaded, under their documented names."""

from ematix_flow.declare.normalizers.pre_transforms import deduplicate_by, filter_where, limit, sample_pct

__all__ = ["deduplicate_by", "filter_where", "limit", "sample_pct"]
