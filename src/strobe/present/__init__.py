"""Numbers as text, charts, pages and the terminal: what all pages and tables are made of."""
