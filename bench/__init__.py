"""The benchmark harness: the product and its peers do the same work, side by side, and the page tells how long it took."""
