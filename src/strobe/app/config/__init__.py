"""The typed configuration, its checks, and composing it."""
