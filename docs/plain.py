"""For the reference pages: docstrings are plain text with a little Markdown, and are shown as they are meant."""

import re

import griffe

DOCTEST = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class Plain(griffe.Extension):
    """Two brackets are two indices, [target][source], and not a link; `>>>` is code and not a quotation."""

    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        if obj.docstring:
            text = obj.docstring.value.replace("][", "]\\[")
            obj.docstring.value = DOCTEST.sub(lambda m: f"```python\n{m[0]}\n```", text)
