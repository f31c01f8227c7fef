"""The shop of `flow init`, and one more load: reviews from JSON lines into DuckDB; the newest row per review is kept."""

from pipelines import CustomerDim, DailyRevenue, Orders  # also registers the three loads of the shop

from ematix_flow import Annotated, BigInt, SmallInt, Text, Timestamp, ematix, pk
from ematix_flow.normalize import clamp, trim
from ematix_flow.transforms import deduplicate_by

__all__ = ["CustomerDim", "DailyRevenue", "Orders", "Reviews", "load_reviews"]


@ematix.table(schema="analytics")
class Reviews:
    review_id: Annotated[BigInt, pk()]
    order_id: BigInt
    stars: Annotated[SmallInt, clamp(1, 5)]
    text: Annotated[Text | None, trim()]
    written_at: Timestamp


@ematix.pipeline(
    source_connection="reviews",
    target=Reviews,
    target_connection="warehouse",
    mode="merge",
    transforms_pre=[deduplicate_by("review_id", order_by="written_at desc")],
)
def load_reviews():
    """Insert new reviews, update edited ones."""
    return "SELECT review_id, order_id, stars, text, written_at FROM raw.reviews"
