"""How long `flow --help` takes."""

from __future__ import annotations

from bench.model import PRODUCT, Case, Contestant, Goal

CASE = Case(
    name="help",
    title="`flow --help`",
    contestants=(Contestant(name=PRODUCT, label="this product", command=("{bin}/flow", "--help")),),
    goals=(Goal(at_most_seconds=0.25),),
)
