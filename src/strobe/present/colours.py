"""Ink that stands out on a colour."""

from strobe.callbacks.figures import INK, PAPER


def ink_on(colour: str) -> str:
    """Of ink and paper, the one that stands out more on a colour ``#RRGGBB``."""
    return max(INK, PAPER, key=lambda ink: contrast(ink, colour))


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours ``#RRGGBB`` by WCAG 2, from 1 to 21."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    """Relative luminance by WCAG 2."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
