"""Formulas as MathML, made when the documentation is built: browsers show them without a script or a network."""

import re
from html import unescape
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<tex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL)


def on_page_content(html: str, **_: Any) -> str:
    """What mkdocs calls for every page."""
    return FORMULA.sub(lambda found: convert(unescape(found["tex"]).strip(),
                                             display="block" if found["tag"] == "div" else "inline"), html)
