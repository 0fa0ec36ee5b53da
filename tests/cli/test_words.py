#!/usr/bin/python3
"""Help, versions, servers, exit codes: what holds for every command."""

import socket
import subprocess
import time
import unittest

from command import NARAD, PATIENCE, Case, Node, environment, narad

COMMANDS = [("topics", "create"), ("topics", "list"), ("topics", "get"), ("topics", "alter"),
            ("topics", "delete"), ("produce",), ("consume",), ("ack",), ("sub",), ("replay",), ("bench",),
            ("metrics",), ("users", "create"), ("users", "list"), ("users", "get"), ("users", "delete"),
            ("users", "grant"), ("users", "passwd"), ("ctx", "add"), ("ctx", "select"), ("ctx", "ls"),
            ("ctx", "rm")]
ASKING = [("topics", "list"), ("topics", "create", "t"), ("topics", "get", "t"),
          ("topics", "alter", "t", "--partitions", "4"), ("topics", "delete", "t"), ("produce", "t"),
          ("produce", "t", "--lines"), ("consume", "t"), ("consume", "t", "--partition", "0", "--offset", "0"),
          ("ack", "t", "--handle", "0:0:1"), ("sub", "t"), ("replay", "t", "--partition", "0"), ("metrics",),
          ("users", "list"), ("users", "get", "u"), ("users", "delete", "u"), ("users", "grant", "u", "--none"),
          ("users", "create", "u", "--user-password-stdin"), ("users", "passwd", "u", "--user-password-stdin"),
          ("bench", "produce-unary", "--seconds", "1"), ("bench", "rpc-unary", "--seconds", "1"),
          ("bench", "rpc-stream", "--seconds", "1")]


class Words(unittest.TestCase):
    def test_every_command_explains_itself(self):
        listed = narad("help").out
        for words in COMMANDS:
            for asked in (narad(*words, "--help"), narad(*words, "-h"), narad("client", *words, "--help")):
                self.assertEqual((asked.status, asked.err), (0, ""), words)
                self.assertTrue(asked.out.startswith("Usage: narad " + " ".join(words)), asked)
                self.assertNotRegex(asked.out, r"(?m) $")
                self.assertIn("--server HOST:PORT|unix:PATH", asked.out)
                self.assertIn("Exit status: 0 done", asked.out)
                self.assertIn("D is a duration such as 500ms", asked.out)
            self.assertIn("\n  " + " ".join(words), listed)
        for arguments in (("client",), ("client", "help"), ("help",), ()):
            asked = narad(*arguments)
            self.assertEqual((asked.status, asked.err), (0, ""), arguments)
            self.assertIn("topics create NAME", asked.out)
        self.assertIn("NARAD_GRPC_ADDR", narad("serve", "--help").out)

    def test_a_group_lists_its_own_commands(self):
        for arguments in (("topics",), ("topics", "--help"), ("users",), ("ctx", "-h"), ("client", "users", "--help")):
            asked = narad(*arguments)
            self.assertEqual((asked.status, asked.err), (0, ""), arguments)
            group = arguments[-1] if len(arguments) == 1 else arguments[-2]
            listed = [line.split()[:2] for line in asked.out.splitlines()[1:]]
            self.assertEqual(listed, [list(words) for words in COMMANDS if words[0] == group], asked)
        wrong = narad("users", "nonsense").err
        self.assertIn("users create NAME", wrong)
        self.assertNotIn("topics create", wrong)

    def test_unknown_words_are_told(self):
        for arguments, status, text in (
                (("nonsense",), 1, 'unknown command "nonsense"'),
                (("client", "nonsense"), 1, 'unknown command "nonsense"'),
                (("topics", "nonsense"), 1, 'unknown command "topics nonsense"'),
                (("consume", "t", "--nonsense"), 1, "unknown option --nonsense; see `narad consume --help`"),
                (("consume", "t", "-x"), 1, "unknown option -x"),
                (("consume", "t", "--max"), 1, "--max needs a value"),
                (("consume", "t", "--raw=yes"), 1, "--raw takes no value"),
                (("consume", "t", "--max="), 1, "must be a whole number"),
                (("consume", "t", "u"), 1, 'unexpected argument "u"'),
                (("consume", "t", "--timeout", "0s"), 1, "--timeout must be above 0"),
                (("consume",), 1, "missing argument: TOPIC"),
                (("bench", "nonsense"), 1, 'unknown mode "nonsense"')):
            result = narad(*arguments)
            self.assertEqual(result.status, status, result)
            self.assertTrue(result.err.startswith("narad: "), result)
            self.assertIn(text, result.err)
            self.assertEqual(result.out, "")

    def test_version(self):
        first = narad("version")
        self.assertEqual(first.status, 0)
        self.assertRegex(first.out, r"^narad \S.*\n$")
        for words in (("--version",), ("client", "version")):
            self.assertEqual(narad(*words).out, first.out)
        for words in (("version", "--json"), ("client", "version", "--json")):
            said = narad(*words).json()
            self.assertEqual("narad " + said["build"] + "\n", first.out)
            self.assertTrue(said["build"].startswith(said["version"]))
        for asked in (narad("version", "--help"), narad("client", "version", "-h")):
            self.assertEqual((asked.status, asked.err), (0, ""))
            self.assertTrue(asked.out.startswith("Usage: narad version [--json]\n"), asked)
        self.assertIn('unexpected "--what"', narad("version", "--what").err)

    def test_no_node_is_told_soon(self):
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))  # bound and not listening: nobody else gets it
            address = "127.0.0.1:%d" % held.getsockname()[1]
            for arguments in ASKING:
                start = time.monotonic()
                result = narad(*arguments, "--server", address, stdin=b"x\n")
                self.assertEqual(result.status, 1, result)
                self.assertRegex(result.err, r"(?m)^narad: .*UNAVAILABLE: .*onnect|^narad: .*onnect")
                self.assertIn(address, result.err)
                self.assertEqual(result.out, "", arguments)
                self.assertLess(time.monotonic() - start, 60, arguments)
        self.assertEqual(narad("topics", "list", "--server", "unix:/nowhere/narad.sock").status, 1)


class Servers(Case):
    def test_client_is_the_same_program(self):
        self.run_ok("client", "topics", "create", "same")
        self.run_ok("client", "produce", "same", stdin=b"x")
        self.assertEqual(self.run_ok("client", "consume", "same", "--raw", "--ack").out, "x\n")
        self.assertEqual(self.run_ok("client", "topics", "get", "same", "--json").json(),
                         self.run_ok("topics", "get", "same", "--json").json())

    def test_the_server_comes_from_the_environment(self):
        env = {"NARAD_SERVER": self.node.address}
        self.assertEqual(narad("topics", "list", env=env).status, 0)
        self.assertEqual(narad("topics", "list", "-s", self.node.address,
                               env={"NARAD_SERVER": "unix:/nowhere"}).status, 0)
        self.assertEqual(narad("topics", "list", env={"NARAD_SERVER": "unix:/nowhere"}).status, 1)

    def test_a_server_that_is_no_address_is_told(self):
        for server in ("127.0.0.1", "http://127.0.0.1:7941", ":7941", "localhost:", "localhost:0", "localhost:65536",
                       "localhost:79x", "unix:"):
            for asked, source in ((narad("topics", "list", "--server", server), "--server"),
                                  (narad("topics", "list", env={"NARAD_SERVER": server}), "NARAD_SERVER")):
                self.assertEqual((asked.status, asked.out), (1, ""), server)
                self.assertIn(f'{source} "{server}": must be HOST:PORT or unix:PATH', asked.err)
        self.assertIn('--server "": must be', narad("topics", "list", "--server", "").err)

    def test_the_unix_socket(self):
        path = "unix:" + self.node.path("data/narad.sock")
        self.assertEqual(narad("topics", "create", "sock", "--server", path).status, 0)
        self.assertEqual(narad("produce", "sock", "--server", path, stdin=b"x").status, 0)
        self.assertEqual(narad("sub", "sock", "--count", "1", "--raw", env={"NARAD_SERVER": path}).out, "x\n")

    def test_options_may_stand_anywhere_after_the_command(self):
        self.run_ok("topics", "create", "--partitions", "4", "any")
        self.run_ok("topics", "get", "any", "--json")
        result = narad("topics", "get", "--server", self.node.address, "--", "--any")
        self.assertEqual(result.status, 1)
        self.assertIn('topic not found: "--any"', result.err)

    def test_metrics_are_text_of_prometheus(self):
        self.run_ok("topics", "create", "measured")
        out = self.run_ok("metrics").out
        self.assertIn("\nnarad_topics_total ", out)
        self.fails(1, "metrics", "--json", text="--json: metrics are text")
        self.assertRegex(out, r"(?m)^# TYPE narad_\w+ (counter|gauge|histogram)$")
        for name in ("data_dir_available_bytes", "boot_duration_seconds"):
            self.assertRegex(out, rf"(?m)^narad_{name} [0-9.]*[1-9]")

    def test_output_that_cannot_be_written_is_a_failure(self):
        self.run_ok("topics", "create", "full")
        self.run_ok("produce", "full", "--partition", "0", stdin=b"x")
        for arguments in (("topics", "list"), ("topics", "get", "full", "--json"), ("metrics",),
                          ("topics", "alter", "full", "--retention-ms", "3600000"), ("consume", "full"),
                          ("replay", "full", "--partition", "0"), ("produce", "full", "--json")):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([NARAD, *arguments, "--server", self.node.address], input=b"x",
                                      stdout=full, stderr=subprocess.PIPE, env=environment(), timeout=PATIENCE,
                                      check=False)
            self.assertEqual(done.returncode, 1, arguments)
            self.assertIn(b"narad: standard output: ", done.stderr, arguments)


class BusyPort(unittest.TestCase):
    def test_is_told_once(self):
        node = Node()
        self.addCleanup(node.stop)
        command = [NARAD, "serve", "--dev", "--data-dir", node.path("other"), "--grpc-addr", node.address,
                   "--addr", "127.0.0.1:0"]
        alone = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, env=environment(), timeout=PATIENCE, check=False)
        self.assertEqual((alone.returncode, alone.stdout.count(b"in use")), (1, 1), alone.stdout)
        apart = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=environment(),
                               timeout=PATIENCE, check=False)
        self.assertEqual((apart.stdout.count(b"in use"), apart.stderr.count(b"in use")), (1, 1), apart)
        self.assertTrue(apart.stderr.startswith(b"narad: grpc.addr: cannot listen on "), apart)


class Locked(unittest.TestCase):
    def test_the_bench_methods_are_only_there_with_dev(self):
        node = Node(dev=False, NARAD_SECURITY_ENABLED="false")
        self.addCleanup(node.stop)
        for mode in ("rpc-unary", "rpc-stream", "rpc-batch"):
            result = narad("bench", mode, "--seconds", "1", "--server", node.address)
            self.assertEqual((result.status, result.out), (1, ""), result)
            self.assertEqual(result.err, f"narad: {mode}: the node does not offer it; was it started with "
                             "--dev?\n")


if __name__ == "__main__":
    unittest.main()
