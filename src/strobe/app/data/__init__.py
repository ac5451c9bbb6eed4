"""What is trained on: one DataModule per file over one base."""
