"""What a run leaves for people to look at and to pass on."""
