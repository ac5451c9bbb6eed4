"""Charts as SVG: small, offline, and legible on a phone, in light and in dark."""
