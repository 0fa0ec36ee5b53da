"""The narad command and nodes for it: free ports, directories of their own, no waiting for time to pass."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from waiting import PATIENCE, environment, wait_until  # noqa: E402

NARAD = os.environ["NARAD_BIN"]


_CERTIFICATES = None


def certificate(name):
    """A file that tests/support/certificates.sh makes, once a program, for whoever asks."""
    global _CERTIFICATES
    if _CERTIFICATES is None:
        _CERTIFICATES = tempfile.TemporaryDirectory(prefix="narad-cli-certificates-")
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support", "certificates.sh")
        subprocess.run(["sh", script, _CERTIFICATES.name], check=True, timeout=PATIENCE)
    return os.path.join(_CERTIFICATES.name, name)


def own_loopback():
    """A loopback address of this process alone: nobody takes a node's port while it is away."""
    pid = os.getpid()
    return f"127.{64 + (pid >> 16) % 128}.{(pid >> 8) % 256}.{1 + pid % 254}"


class Node:
    """A running node; its directory, made here, holds data/, log and ready.json."""

    def __init__(self, *flags, dev=True, **env):
        self.directory = tempfile.mkdtemp(prefix="narad-cli-")
        self.flags, self.dev, self.env = flags, dev, env
        self.start(own_loopback() + ":0")

    def path(self, name):
        return os.path.join(self.directory, name)

    def start(self, address):
        if os.path.exists(self.path("ready.json")):
            os.unlink(self.path("ready.json"))
        command = [NARAD, "serve", "--data-dir", self.path("data"), "--grpc-addr", address,
                   "--addr", own_loopback() + ":0",
                   "--ready-file", self.path("ready.json")] + (["--dev"] if self.dev else [])
        with open(self.path("log"), "ab") as log:
            self.process = subprocess.Popen([*command, *self.flags], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, env=environment(**self.env))
        try:
            self.address = wait_until(self.ready, "the node is ready")
        except BaseException:
            self.kill()
            raise

    def ready(self):
        if self.process.poll() is not None:
            raise AssertionError("the node ended at its start:\n" + self.log())
        try:
            with open(self.path("ready.json"), encoding="utf-8") as file:
                return json.load(file)["grpc_addr"]
        except FileNotFoundError:
            return None

    def log(self):
        with open(self.path("log"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def restart(self):
        """After kill: the same data, at the same address."""
        self.start(self.address)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=PATIENCE)
        log = self.log()
        shutil.rmtree(self.directory)
        if status != 0:
            raise AssertionError(f"exit status {status} of the node:\n" + log[-20000:])


class Result:
    def __init__(self, done):
        self.status = done.returncode
        self.bytes = done.stdout
        self.out = done.stdout.decode("utf-8", "replace")
        self.err = done.stderr.decode("utf-8", "replace")

    def json(self):
        return json.loads(self.out)

    def __repr__(self):
        return f"status {self.status}\nstdout: {self.out[-3000:]}\nstderr: {self.err[-3000:]}"


def narad(*arguments, stdin=b"", env=None):
    """Run a command to its end."""
    return Result(subprocess.run([NARAD, *arguments], input=stdin, capture_output=True, timeout=PATIENCE,
                                 env=environment(**(env or {})), check=False))


class Case(unittest.TestCase):
    """Tests that share one node; `self.run_ok(...)` and `self.fails(...)` talk to it."""

    @classmethod
    def setUpClass(cls):
        cls.node = Node()

    @classmethod
    def tearDownClass(cls):
        cls.node.stop()

    def setUp(self):
        self.scratch = tempfile.mkdtemp(prefix="narad-cli-")
        self.addCleanup(shutil.rmtree, self.scratch)

    def command(self, *arguments, stdin=b""):
        return narad(*arguments, "--server", self.node.address, stdin=stdin)

    def run_ok(self, *arguments, stdin=b""):
        result = self.command(*arguments, stdin=stdin)
        self.assertEqual(result.status, 0, result)
        return result

    def fails(self, status, *arguments, text="", stdin=b""):
        """It exits with `status`, says `text`, begins with "narad: " and prints no result."""
        result = self.command(*arguments, stdin=stdin)
        self.assertEqual(result.status, status, result)
        self.assertIn(text, result.err)
        self.assertRegex(result.err, r"(?m)^narad: ")
        self.assertEqual(result.out, "")
        return result

    def topic(self, *options):
        """A new topic named after the test."""
        name = self.id().rsplit(".", 1)[1][-200:]
        self.run_ok("topics", "create", name, *options)
        return name

    def file(self, data, name="input"):
        path = os.path.join(self.scratch, name)
        with open(path, "wb") as file:
            file.write(data)
        return path

    def stored(self, topic):
        """All payloads by partition, read by offset."""
        details = self.run_ok("topics", "get", topic, "--json").json()
        payloads = {}
        for stats in details["partition_stats"]:
            index = stats["index"]
            lines = self.run_ok("replay", topic, "--partition", str(index), "--raw").bytes
            payloads[index] = lines.split(b"\n")[:-1]
        return payloads

    def count(self, topic):
        details = self.run_ok("topics", "get", topic, "--json").json()
        return sum(stats["high_watermark"] for stats in details["partition_stats"])

    def open(self, *arguments, **pipes):
        """Start a command that runs on; killed at the end if it still does."""
        process = subprocess.Popen([NARAD, *arguments, "--server", self.node.address],
                                   env=environment(), **pipes)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None and not pipe.closed:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass
        process.wait()
