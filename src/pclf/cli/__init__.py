"""The command line. Results go to stdout, progress and notes to stderr.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""

import contextlib
import os
import re
import signal
import sys
import threading
import time
import warnings
from typing import Any, TextIO

LONGEST = 4_000      # characters of a message
AGAIN = 0.2          # seconds after which a Ctrl-C that was dropped comes again


def main() -> None:
    """Run `pclf`: one line for an error that has an explanation, a traceback only with --debug."""
    stop = _Interrupts()
    try:
        debug = "--debug" in sys.argv or bool(os.environ.get("PCLF_DEBUG"))
        sys.argv = [word for word in sys.argv if word != "--debug"]
        code = _run(debug)
    except BaseException as error:
        if not isinstance(error, KeyboardInterrupt) and not stop.watched:      # what it became on the way is no matter
            raise
        code = 130
    stop.arrived = True
    if code == 130 or stop.watched:
        _say("interrupted.")
        _leave(130)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)      # all is done: while Python ends, Ctrl-C has nothing to stop
    sys.exit(code)


class _Interrupts:
    """Ctrl-C as KeyboardInterrupt, again and again until it arrives.

    Some callbacks drop an exception (llvmlite's, those of weak references), and some imports take it for a missing
    module. One that is being dealt with is left alone: running jobs may want to finish.
    """

    def __init__(self) -> None:
        self.arrived = self.watched = False
        if threading.current_thread() is threading.main_thread():
            self.main = threading.get_ident()
            self.unraisable, sys.unraisablehook = sys.unraisablehook, self._dropped
            signal.signal(signal.SIGINT, self._came)

    def _came(self, number: int, frame: Any) -> None:
        if self.arrived:
            return
        if not self.watched:
            self.watched = True
            threading.Thread(target=self._watch, daemon=True).start()
        raise KeyboardInterrupt

    def _watch(self) -> None:
        while not self.arrived:
            time.sleep(AGAIN)
            current = sys._current_exceptions().get(self.main)                  # of Python 3.11 a triple
            error = current[1] if isinstance(current, tuple) else current
            if not self.arrived and not isinstance(error, KeyboardInterrupt):
                signal.pthread_kill(self.main, signal.SIGINT) if hasattr(signal, "pthread_kill") else \
                    signal.raise_signal(signal.SIGINT)

    def _dropped(self, unraisable: Any) -> None:
        if unraisable.exc_type is not KeyboardInterrupt:                        # it comes again in a moment
            self.unraisable(unraisable)


def _leave(code: int) -> None:
    """End at once: what still runs in other threads and processes would be waited for."""
    if "multiprocessing" in sys.modules:
        for child in sys.modules["multiprocessing"].active_children():
            child.terminate()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _run(debug: bool) -> int:
    import typer

    from pclf.cli.commands import app
    from pclf.errors import PclfError

    # Whether click is a package of its own or a part of typer, its UsageError is what BadParameter derives from.
    usage_error: Any = typer.BadParameter.__bases__[0]
    try:
        warnings.showwarning = _warn
        code = int(app(prog_name="pclf", standalone_mode=False) or 0)      # 130: newer typers turn Ctrl-C into this
        sys.stdout.flush()                           # here, where a reader that has gone is no failure
        return code
    except typer.Exit as stop:
        return int(stop.exit_code)
    except typer.Abort:
        return 130
    except usage_error as error:
        where = f"\nTry: {error.ctx.command_path} --help" if getattr(error, "ctx", None) else ""
        _say(error.format_message() + where)
        return 2
    except (BrokenPipeError, SystemExit) as stop:    # `| head` has what it wanted: click and rich exit
        if isinstance(stop, SystemExit) and not isinstance(stop.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (PclfError, ValueError, OSError, MemoryError) as error:
        if debug:
            raise
        _say(_as_typed(str(error)) or type(error).__name__)
        return 1


def _as_typed(text: str) -> str:
    """Advice for Python, user_col=... and time_col, as options: --user-col ... and --time-col."""
    import typer

    from pclf.cli.commands import app

    group: Any = typer.main.get_command(app)
    flags = {option.name: getattr(option, "is_flag", False) for one in group.commands.values() for option in one.params}

    def typed(found: re.Match[str]) -> str:
        name, value = found[1], found[2]
        if "_" not in name and (flags[name] or not value):             # a word that means what it says
            return found[0]
        option = f"--{name.replace('_', '-')}"
        return option if flags[name] or not value else f"{option} {'auto' if value == '=True' else ''}"

    return re.sub(rf"(?<![\w'\"])({'|'.join(flags)})(=True\b|=(?=\.\.\.|')|(?![\w='\"]))", typed, text)


def _warn(message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None,
          line: str | None = None) -> None:
    """A warning as people read it: without the line of code that gave it."""
    _say(f"warning: {_as_typed(str(message))}")


def _say(text: str) -> None:
    from pclf.errors import visible

    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}... ({len(text):,} characters)"
    print(visible(f"pclf: {text}"), file=sys.stderr)
