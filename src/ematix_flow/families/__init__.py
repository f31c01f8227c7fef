"""What backends of one kind share: how databases and lakes publish a load atomically."""
