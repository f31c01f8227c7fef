"""Decides what will be done from declarations and inspected state; changes nothing."""
