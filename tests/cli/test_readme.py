#!/usr/bin/python3
"""The session "With TLS and users" of the README, as it stands but for where the node lives."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest

from command import NARAD, PATIENCE, Case, environment, narad, own_loopback, wait_until

README = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "README.md")


def blocks():
    with open(README, encoding="utf-8") as file:
        text = file.read()
    section = re.search(r"^## With TLS and users$(.*?)^## ", text, re.M | re.S).group(1)
    return re.findall(r"^```sh\n(.*?)^```$", section, re.M | re.S)


def plain_shell():
    """One that knows no more than POSIX: dash, or bash that is told so."""
    return ["dash"] if shutil.which("dash") else ["bash", "--posix"]


class Readme(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="narad-cli-readme-")
        self.addCleanup(shutil.rmtree, self.directory)
        os.makedirs(self.path("build/release/bin"))
        os.symlink(NARAD, self.path("build/release/bin/narad"))

        # Of a build with sanitizers: c-ares, by which gRPC finds "localhost", forgets ten bytes.
        with open(self.path("leaks"), "w", encoding="utf-8") as file:
            file.write("leak:libcares\n")
        self.env = {"LSAN_OPTIONS": "print_suppressions=0:suppressions=" + self.path("leaks"),
                    "NARAD_CONFIG_DIR": self.path("config")}

    def path(self, name):
        return os.path.join(self.directory, name)

    def shell(self, text, **env):
        """A plain shell in the directory of the README, with the alias that it sets up earlier."""
        start = "set -e\nalias narad=build/release/bin/narad\n"
        return subprocess.Popen([*plain_shell(), "-c", start + text], cwd=self.directory, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                env=environment(**self.env, **env))

    def ready(self):
        if self.node.poll() is not None:
            raise AssertionError(self.node.stdout.read().decode())
        return os.path.exists(self.path("ready.json"))

    def test_every_block_for_sh_is_for_any_sh(self):
        with open(README, encoding="utf-8") as file:
            found = re.findall(r"^```sh\n(.*?)^```$", file.read(), re.M | re.S)
        self.assertGreaterEqual(len(found), 3)
        for block in found:
            done = subprocess.run([*plain_shell(), "-n"], input=block.encode(), capture_output=True,
                                  timeout=PATIENCE, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, b""), block)
            self.assertNotRegex(block, r"<<<|\[\[|[<>]\(|\bsource\b|&>|\$'")

    def test_the_session_runs(self):
        serve, session = blocks()
        self.assertIn("--data-dir /var/tmp/narad-tls\n", serve)
        serve = serve.replace("build/release/bin/narad serve", "exec build/release/bin/narad serve")
        serve = serve.replace("--data-dir /var/tmp/narad-tls",
                              "--data-dir data --ready-file ready.json --log-level warn")
        address = own_loopback().rsplit(".", 1)[0]
        self.node = self.shell(serve, NARAD_GRPC_ADDR="127.0.0.1:0", NARAD_HTTP_ADDR=address + ".2:0",
                               NARAD_CLUSTER_ADDR=address + ".3:0")
        self.addCleanup(Case.end, self.node)
        wait_until(self.ready, "the node is ready")
        with open(self.path("ready.json"), encoding="utf-8") as file:
            port = re.search(r'"grpc_addr":"127.0.0.1:(\d+)"', file.read()).group(1)
        root = ("--server", "localhost:" + port, "--ca-file", self.path("broker.pem"), "--user", "admin")
        wait_until(lambda: narad("users", "list", *root, env={"NARAD_PASS": "change-me", **self.env}).status == 0,
                   "the first account is there")
        done = self.shell(session.replace("localhost:7941", "localhost:" + port))
        out = done.communicate(timeout=PATIENCE)[0].decode()
        self.assertEqual(done.returncode, 0, out)
        self.assertIn('{"id": 1}', out)
        self.assertIn('"owner": "ann"', out)
        self.assertRegex(out, r"(?m)^ann +create:orders\* produce:orders\* consume:orders\*$")
        self.assertEqual(os.stat(self.path("config/contexts.json")).st_mode & 0o777, 0o600)
        self.node.terminate()
        self.assertEqual(self.node.wait(timeout=PATIENCE), 0)


if __name__ == "__main__":
    unittest.main()
