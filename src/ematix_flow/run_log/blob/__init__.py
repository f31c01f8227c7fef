"""The run log as objects of a bucket: the part that all object stores share."""
