"""Assertions on every figure of a page."""

from matplotlib.figure import Figure
from matplotlib.text import Text

PHONE = 346.0
"""Pixels that a page leaves for a figure on a telephone 390 pixels wide."""
LEAST = 9.0


def smallest(figure: Figure) -> float:
    """Pixels that the smallest letters of a figure have there; exponents above the line have 0.7 of a letter's."""
    shown = [one for one in figure.findobj(Text) if one.get_text().strip() and one.get_visible()]
    sizes = [one.get_fontsize() * (0.7 if "^" in one.get_text() else 1.0) for one in shown]
    return min(sizes, default=LEAST) * 96 / 72 * min(1.0, PHONE / (96 * figure.get_figwidth()))


def legible(figure: Figure) -> None:
    """Letters can be read on a telephone, and none is cut off at an edge."""
    assert smallest(figure) >= LEAST
    for axis in figure.axes:
        box = axis.get_tightbbox()
        assert box is None or (box.x0 >= -3 and box.x1 <= figure.bbox.x1 + 3)
