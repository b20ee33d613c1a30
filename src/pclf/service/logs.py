"""Logs: one JSON object a line on stderr. Ids of people are in them only where that was asked for."""

import sys
import time
from typing import Any

import orjson

LEVELS = {"debug": 0, "info": 1, "warning": 2, "error": 3}


class Log:
    def __init__(self, level: str = "info", with_ids: bool = False) -> None:
        self.least, self.with_ids = LEVELS.get(level, 1), with_ids

    def __call__(self, event: str, level: str = "info", *, person: str | None = None, **fields: Any) -> None:
        """person: an id, which is left out unless it was asked for."""
        if LEVELS[level] < self.least:
            return
        line = {"at": round(time.time(), 3), "level": level, "event": event, **fields}
        if person is not None and self.with_ids:
            line["user"] = person
        sys.stderr.write(as_json(line).decode() + "\n")


def as_json(value: Any) -> bytes:
    """JSON; halves of characters, which UTF-8 has no place for, are escaped."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    except (TypeError, orjson.JSONEncodeError):
        import json

        return json.dumps(value, ensure_ascii=True, allow_nan=False, default=str).encode()
