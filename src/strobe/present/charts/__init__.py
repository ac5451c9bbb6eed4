"""Charts as SVG, drawn by hand: small, offline, legible on a phone, in light and in dark. Each form once."""
