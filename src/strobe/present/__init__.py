"""Numbers as text, charts, pages and the terminal: what every page and table is made of."""
