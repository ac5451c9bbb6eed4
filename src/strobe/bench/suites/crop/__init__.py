"""Decoders of crops, alone and in a training step."""
