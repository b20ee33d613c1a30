"""A tenth of `make attack`, or what 40 seconds are enough for: nothing dies, no error is foreign, nothing is silent."""

import re
import subprocess
import sys
from pathlib import Path


def test_hostile_files_are_refused_or_read_as_what_they_are():
    words = [sys.executable, str(Path(__file__).parents[1] / "benchmarks" / "attack.py"), "--models", "1000",
             "--folders", "100", "--ratings", "1000", "--archives", "100", "--seconds", "40"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" 0 FAILED") == 4
    tried = [int(n.replace(",", "")) for n in re.findall(r"([\d,]+) tried", done.stdout)]
    assert min(tried) > 0, done.stdout
