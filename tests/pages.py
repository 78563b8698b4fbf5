"""Pages whose tables are made from records and stand between marks, such as ``<!-- cost -->`` and ``<!-- end -->``."""

import re

BETWEEN = re.compile(r"(<!-- (?!end).*? -->\n).*?\n(<!-- end -->)", re.DOTALL)


def emptied(text: str) -> str:
    """The page without its tables: to fill it again must give the page that is published."""
    assert BETWEEN.search(text)
    return BETWEEN.sub(r"\1\2", text)
