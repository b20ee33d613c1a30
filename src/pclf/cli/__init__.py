"""The command line. Results go to stdout, progress and notes to stderr.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""

import os
import re
import signal
import sys
import threading
import warnings
from typing import Any, TextIO

LONGEST = 4_000      # characters of a message


def main() -> None:
    """Run `pclf`: one line for an error that has an explanation, a traceback only with --debug."""
    debug = "--debug" in sys.argv or bool(os.environ.get("PCLF_DEBUG"))
    sys.argv = [word for word in sys.argv if word != "--debug"]
    sys.exit(_run(debug))


def _ctrl_c(number: int, frame: Any) -> None:
    """KeyboardInterrupt, but not in a callback of llvmlite, which would drop it: there it comes back in a moment."""
    if frame is not None and "llvmlite" in frame.f_code.co_filename:
        threading.Timer(0.1, os.kill, (os.getpid(), number)).start()
    else:
        raise KeyboardInterrupt


def _run(debug: bool) -> int:
    import typer

    from pclf.cli.commands import app
    from pclf.errors import PclfError

    # Whether click is a package of its own or a part of typer, its UsageError is what BadParameter derives from.
    usage_error: Any = typer.BadParameter.__bases__[0]
    try:
        warnings.showwarning = _warn
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, _ctrl_c)
        code = int(app(prog_name="pclf", standalone_mode=False) or 0)
        if code == 130:   # newer typers turn Ctrl-C into this themselves
            raise KeyboardInterrupt
        return code
    except typer.Exit as stop:
        return int(stop.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        _say("interrupted.")
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
    """Advice for Python, user_col=..., as options: --user-col ..."""
    return re.sub(r"\b(user_col|item_col|rating_col|user_domain|encoding|duplicates|shared_users|scale)=(?=\.\.\.|')",
                  lambda name: f"--{name[1].replace('_', '-')} ", text)


def _warn(message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None,
          line: str | None = None) -> None:
    """A warning as people read it: without the line of code that gave it."""
    _say(f"warning: {_as_typed(str(message))}")


def _say(text: str) -> None:
    from pclf.errors import visible

    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}... ({len(text):,} characters)"
    print(visible(f"pclf: {text}"), file=sys.stderr)
