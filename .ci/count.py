"""Count the results of ctest runs.   usage: count.py [--show-failed] JUNIT.xml...

Prints "N passed, N failed" (", N skipped" when there are any); exits 1 when a test failed or none ran.
A test whose program is missing has failed: only one that says so itself (SKIP_RETURN_CODE) was skipped.
With --show-failed it prints the names and output of the failed tests instead of the count.
"""

import sys
import xml.etree.ElementTree as xml


def outcome(case):
    if case.get("status") == "run":
        return "passed"
    skipped = case.find("skipped")
    if skipped is not None and skipped.get("message", "").startswith("SKIP_"):
        return "skipped"
    return "failed"


def show(case, run):
    output = case.findtext("system-out") or ""
    lines = output.splitlines()
    if len(lines) > 200:
        lines = lines[:50] + [f"[... {len(lines) - 200} lines ...]"] + lines[-150:]
    print(f"---- FAILED {case.get('name')} after {float(case.get('time', 0)):.0f} s ({run})")
    print("\n".join(lines) if lines else "(no output: it ran into its time limit, or was killed)")


def main(arguments):
    showing = arguments[:1] == ["--show-failed"]
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for path in arguments[1:] if showing else arguments:
        for case in xml.parse(path).getroot().iter("testcase"):
            result = outcome(case)
            counts[result] += 1
            if showing and result == "failed":
                show(case, path)
    if showing:
        return 0
    line = f"{counts['passed']} passed, {counts['failed']} failed"
    if counts["skipped"]:
        line += f", {counts['skipped']} skipped"
    print(line)
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
