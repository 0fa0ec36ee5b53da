"""What tests of other processes share: a clean environment, and waiting for what they do."""

import os
import threading
import time

PATIENCE = 180  # seconds for what takes milliseconds: a slow machine is no failure


def environment(**extra):
    """Of a node or a command: nothing of ours, so that a tester's settings do not matter."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("NARAD_")}
    kept["NARAD_CONFIG_DIR"] = "/nowhere/narad"  # a tester's contexts
    kept["NARAD_HTTP_ADDR"] = "127.0.0.1:0"  # nodes side by side
    kept.update(extra)
    return kept


def wait_until(condition, what, seconds=PATIENCE):
    """Look until `condition()` is true. For what no one tells: the state of another process."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError("never happened: " + what)
        pause.wait(0.01)
