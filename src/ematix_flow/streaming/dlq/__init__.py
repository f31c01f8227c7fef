"""Dead letters: finds rows that fail, stores them, lists and replays them."""
