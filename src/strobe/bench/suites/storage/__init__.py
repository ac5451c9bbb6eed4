"""Loaders of photos from object storage beside each other, at several latencies."""
