"""For the reference pages: docstrings are plain text with a little Markdown, and are shown as they are meant."""

import re

import griffe

DOCTEST = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
ARGUMENT = re.compile(r"(?:^|(?<=\. ))([a-z]\w*(?:, [a-z]\w*)*): ", re.MULTILINE)


class Plain(griffe.Extension):
    """`>>>` is code and not a quotation; [target][source] has two indices and is no link; `name: ...` is a list."""

    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        if obj.docstring:
            text = obj.docstring.value.replace("][", "]\\[")
            text = DOCTEST.sub(lambda m: f"```python\n{m[0]}\n```", text)
            obj.docstring.value = ARGUMENT.sub(r"\n* `\1`: ", text)
