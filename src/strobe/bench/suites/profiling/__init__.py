"""What profilers cost the training that they watch."""
