"""The application: what ``train.py`` trains."""
