"""Measure the peak anonymous memory of a conversion against what its dry run predicts.

    python scripts/measure_memory.py CHECKPOINT --out FILE [options of `ninfer convert`]

Runs `ninfer convert` twice, with --dry-run and without, and reads RssAnon of the second one every
ten milliseconds (Linux). Pages of mapped files are not counted: the system takes them back when
it needs them. Prints one JSON object.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

PERIOD_SECONDS = 0.01
_ANONYMOUS = re.compile(r"^RssAnon:\s+(\d+) kB$", re.MULTILINE)


def predict(arguments: list[str]) -> int:
    """Return the bytes that the dry run prints."""
    line = [sys.executable, "-m", "ninfer_tools", "convert", *arguments, "--dry-run", "--json"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["memory_bytes"]


def measure(arguments: list[str]) -> tuple[int, float]:
    """Return the peak of anonymous bytes of a conversion, and its seconds."""
    begin, peak = time.monotonic(), 0
    line = [sys.executable, "-m", "ninfer_tools", "convert", *arguments, "--json"]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL)
    status = Path(f"/proc/{process.pid}/status")
    while process.poll() is None:
        found = _ANONYMOUS.search(status.read_text())
        peak = max(peak, int(found[1]) << 10 if found else 0)
        time.sleep(PERIOD_SECONDS)
    if process.returncode:
        raise SystemExit(process.returncode)
    return peak, time.monotonic() - begin


def main() -> None:
    arguments = sys.argv[1:]
    if not arguments:
        raise SystemExit(__doc__)
    predicted = predict(arguments)
    peak, seconds = measure(arguments)
    record = {"predicted": predicted, "peak": peak, "seconds": round(seconds, 1)}
    print(json.dumps(record | {"predicted_per_peak": round(predicted / peak, 3)}))


if __name__ == "__main__":
    main()
