"""Normalizers of columns and transforms of batches, as frozen values."""
