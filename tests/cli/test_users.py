#!/usr/bin/python3
"""narad users and the credentials of every command, against a node with users. What a command may do shows
who it is: the owner of a topic that it creates."""

import errno
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import termios
import unittest

from command import NARAD, PATIENCE, Case, Node, certificate, environment, narad, wait_until

ROOT = "R00t-pass:w\u00f6rd"
SECRETS = {"ann": "Ann's s3cret", "bob": "bob#pass,word", "eve": "eve-2:pw"}


class SecuredNode(Node):
    def __init__(self, **more):
        super().__init__(dev=False, NARAD_ADMIN_PASSWORD=ROOT, **more)
        self.root = ("--server", self.address, "--user", "admin")
        wait_until(lambda: narad("users", "list", *self.root, env={"NARAD_PASS": ROOT}).status == 0,
                   "root is there")


class Users(Case):
    @classmethod
    def setUpClass(cls):
        cls.node = SecuredNode()
        for name, grants in (("ann", ("create:*", "produce:orders-*,clicks", "consume:orders-*")),
                             ("bob", ("create:*",))):
            options = [word for grant in grants for word in ("--grant", grant)]
            made = narad("users", "create", name, "--user-password-stdin", *options, *cls.node.root,
                         stdin=SECRETS[name].encode() + b"\n", env={"NARAD_PASS": ROOT})
            if made.status != 0:
                cls.node.kill()
                raise AssertionError(made)

    @classmethod
    def tearDownClass(cls):
        cls.node.stop()

    def setUp(self):
        super().setUp()
        self.config = os.path.join(self.scratch, "config")

    def ask(self, *arguments, status=0, stdin=b"", text="", **env):
        env = {"NARAD_SERVER": self.node.address, "NARAD_CONFIG_DIR": self.config, **env}
        result = narad(*arguments, stdin=stdin, env={k: v for k, v in env.items() if v is not None})
        self.assertEqual(result.status, status, result)
        self.assertIn(text, result.err)
        for secret in (ROOT, *SECRETS.values()):
            self.assertNotIn(secret, result.out + result.err)
        return result

    def root(self, *arguments, **more):
        return self.ask(*arguments, NARAD_USER="admin", NARAD_PASS=ROOT, **more)

    def owner(self, *flags, stdin=b"", **env):
        """Who the node takes the command for."""
        name = f"owned-{os.urandom(8).hex()}"
        return self.ask("topics", "create", name, "--json", *flags, stdin=stdin, **env).json()["owner"]

    def test_users_are_shown_as_the_rest_api_does(self):
        ann = self.root("users", "get", "ann", "--json").json()
        self.assertEqual(list(ann), ["username", "grants", "created_at_ms", "updated_at_ms"])
        self.assertEqual(ann["username"], "ann")
        grants = {grant["action"]: grant["patterns"] for grant in ann["grants"]}
        self.assertEqual(grants, {"create": ["*"], "produce": ["orders-*", "clicks"], "consume": ["orders-*"]})
        self.assertGreater(ann["created_at_ms"], 1_000_000_000_000)
        everybody = self.root("users", "list", "--json").json()
        self.assertEqual([user["username"] for user in everybody if user["username"] in ("admin", "ann", "bob")],
                         ["admin", "ann", "bob"])
        root = next(user for user in everybody if user["username"] == "admin")
        self.assertEqual((root["root"], "grants" in root), (True, False))
        lines = self.root("users", "list").out.splitlines()
        self.assertEqual(lines[0].split(), ["NAME", "GRANTS"])
        self.assertEqual(next(line.split() for line in lines if line.startswith("admin ")), ["admin", "root"])
        self.assertEqual(self.root("users", "get", "bob").out.split(), ["bob", "create:*"])
        self.root("users", "get", "ghost", status=1, text="NOT_FOUND")

    def test_life_of_a_user(self):
        made = self.root("users", "create", "eve", "--user-password-stdin", "--grant", "consume:a,b*", "--json",
                         stdin=SECRETS["eve"].encode() + b"\n").json()
        self.assertEqual(made["grants"], [{"action": "consume", "patterns": ["a", "b*"]}])
        self.root("users", "create", "eve", "--user-password-stdin", status=1, text="ALREADY_EXISTS",
                  stdin=b"x\n")
        self.ask("topics", "list", "-u", "eve", "-p", SECRETS["eve"])
        self.ask("users", "list", "-u", "eve", "-p", SECRETS["eve"], status=1,
                 text="PERMISSION_DENIED: admin privileges required")
        changed = self.root("users", "grant", "eve", "--grant", "produce:x", "--grant", "create:y*", "--json").json()
        self.assertEqual(changed["grants"], [{"action": "produce", "patterns": ["x"]},
                                             {"action": "create", "patterns": ["y*"]}])
        self.assertNotIn("grants", self.root("users", "grant", "eve", "--none", "--json").json())
        self.assertIn(" -", self.root("users", "get", "eve").out)
        # One's own password, then another's by an admin.
        self.ask("users", "passwd", "--user-password-stdin", "-u", "eve", "-p", SECRETS["eve"],
                 stdin=b"another one\n")
        self.ask("topics", "list", "-u", "eve", "-p", SECRETS["eve"], status=1, text="UNAUTHENTICATED")
        self.ask("topics", "list", "-u", "eve", "-p", "another one")
        self.assertEqual(self.root("users", "passwd", "eve", "--user-password-stdin", "--json",
                                   stdin=SECRETS["eve"].encode()).json(), {"username": "eve", "changed": True})
        self.ask("topics", "list", "-u", "eve", "-p", SECRETS["eve"])
        self.assertEqual(self.root("users", "delete", "eve").err, "deleted\n")
        self.ask("topics", "list", "-u", "eve", "-p", SECRETS["eve"], status=1, text="UNAUTHENTICATED")
        self.root("users", "delete", "eve", status=1, text="NOT_FOUND")

    def test_admin_is_a_grant_without_patterns(self):
        made = self.root("users", "create", "chief", "--grant", "admin", "--user-password-stdin", "--json",
                         stdin=b"chief's\n").json()
        self.assertEqual(made["grants"], [{"action": "admin"}])
        self.ask("users", "list", "-u", "chief", "-p", "chief's")
        self.root("users", "delete", "chief")

    def test_wrong_words_are_told(self):
        for grant in ("", ":x", "produce:"):
            self.root("users", "grant", "ann", "--grant", grant, status=1, text="must be ACTION:PATTERN")
        self.root("users", "grant", "ann", "--grant", "fly:x", status=1, text="INVALID_ARGUMENT")
        self.root("users", "grant", "ann", "--grant", "produce:a*b", status=1, text="INVALID_ARGUMENT")
        self.root("users", "grant", "ann", status=1, text="give either --grant or --none")
        self.root("users", "create", "new", status=1, text="no terminal to ask for the password")
        self.root("users", "create", "new", "--user-password-stdin", status=1, text="no password came")
        self.root("users", "create", "new", "--user-password-stdin", status=1, stdin=b"x" * 2000,
                  text="longer than 1024 bytes")
        self.root("users", "create", "new", "--user-password-stdin", status=1, stdin=b"x" * 73 + b"\n",
                  text="INVALID_ARGUMENT")
        self.root("users", "create", "a b", "--user-password-stdin", status=1, stdin=b"x\n",
                  text="username must match")

    def test_credentials_come_from_flag_variable_or_context(self):
        ann, bob = {"NARAD_USER": "ann", "NARAD_PASS": SECRETS["ann"]}, SECRETS["bob"]
        self.assertEqual(self.owner(**ann), "ann")
        self.assertEqual(self.owner("-u", "bob", "-p", bob, **ann), "bob")
        self.assertEqual(self.owner("--user=bob", "--password=" + bob, **ann), "bob")
        self.assertEqual(self.owner("-u", "bob", "--password-stdin", stdin=bob.encode() + b"\n", **ann), "bob")
        self.ask("ctx", "add", "as-bob", "-s", self.node.address, "-u", "bob", "-p", bob, "--select")
        self.assertEqual(self.owner(NARAD_SERVER=None), "bob")
        self.assertEqual(self.owner("--ctx", "as-bob"), "bob")
        self.assertEqual(self.owner(NARAD_SERVER=None, **ann), "ann")
        self.assertEqual(self.owner("-u", "ann", NARAD_SERVER=None, NARAD_PASS=SECRETS["ann"]), "ann")
        # A password that a context keeps is for its own user and its own server only.
        self.ask("topics", "list", "-u", "ann", status=1, NARAD_SERVER=None, text="user ann has no password")
        self.ask("topics", "list", status=1, text="UNAUTHENTICATED")

    def test_what_is_missing_or_wrong_is_told(self):
        self.ask("topics", "list", status=1, text="UNAUTHENTICATED: authentication required (no or wrong name and password: "
                 "--user, NARAD_USER, a context)")
        self.ask("topics", "list", "-u", "ann", "-p", "wrong", status=1, text="UNAUTHENTICATED")
        self.ask("topics", "list", "-u", "nobody", "-p", "x", status=1, text="UNAUTHENTICATED")
        self.ask("topics", "list", "-p", "x", status=1, text="a password is given and no user")
        self.ask("topics", "list", "-u", "ann", status=1, text="user ann has no password: give NARAD_PASS")
        self.ask("topics", "list", "-u", "ann", "-p", "", status=1, text="the password is empty")
        self.ask("topics", "list", "-u", "a:b", "-p", "x", status=1, text="has no colon")
        self.ask("topics", "list", "-u", "ann", "-p", "x", "--password-stdin", status=1, stdin=b"x\n",
                 text="--password and --password-stdin exclude each other")
        self.ask("topics", "list", "-u", "ann", "--password-stdin", status=1, text="no password came")

    def test_a_password_line_leaves_the_rest_of_standard_input(self):
        ann = ("-u", "ann", "--password-stdin")
        line = SECRETS["ann"].encode() + b"\n"
        self.ask("topics", "create", "orders-in", *ann, stdin=line)
        self.ask("produce", "orders-in", "--partition", "0", *ann, stdin=line + b"the message")
        self.ask("produce", "orders-in", "--partition", "0", "--lines", *ann, stdin=line + b"one\ntwo\n")
        self.assertEqual(self.ask("replay", "orders-in", "--partition", "0", "--raw", *ann, stdin=line).out,
                         "the message\none\ntwo\n")
        self.root("users", "create", "both", "--user-password-stdin", stdin=b"first\n")
        self.ask("users", "passwd", "-u", "both", "--password-stdin", "--user-password-stdin",
                 stdin=b"first\nsecond\n")
        self.ask("topics", "list", "-u", "both", "-p", "second")

    def test_every_command_carries_the_credentials(self):
        ann = {"NARAD_USER": "ann", "NARAD_PASS": SECRETS["ann"]}
        self.ask("topics", "create", "orders-all", **ann)
        self.ask("produce", "orders-all", stdin=b"1", **ann)
        handle = self.ask("consume", "orders-all", "--json", **ann).json()["receipt_handle"]
        self.ask("ack", "orders-all", "--handle", handle, **ann)
        self.ask("produce", "orders-all", "--lines", stdin=b"2\n3\n", **ann)
        self.assertEqual(len(self.ask("sub", "orders-all", "--count", "2", "--raw", **ann).out.split()), 2)
        self.ask("replay", "orders-all", "--partition", "0", **ann)
        self.ask("topics", "get", "orders-all", **ann)
        self.ask("topics", "alter", "orders-all", "--partitions", "4", **ann)
        self.ask("bench", "produce-unary", "--topic", "orders-all", "--seconds", "1", **ann)
        self.ask("produce", "elsewhere", stdin=b"1", status=1, text="produce not allowed on this topic", **ann)
        self.ask("topics", "delete", "orders-all", status=1, NARAD_USER="bob", NARAD_PASS=SECRETS["bob"],
                 text="PERMISSION_DENIED")
        self.ask("topics", "delete", "orders-all", **ann)

    def test_a_password_in_clear_to_another_host_is_warned_about(self):
        def warned(*arguments):
            return "travels in clear" in narad(*arguments, "-u", "ann", "-p", "x").err

        # 0.0.0.0 is this machine and not called loopback: nothing leaves it.
        self.assertTrue(warned("topics", "list", "-s", "0.0.0.0:1"))
        self.assertFalse(warned("topics", "list", "-s", "0.0.0.0:1", "--ca-file", certificate("ca.pem")))
        for server in (self.node.address, "localhost:1", "[::1]:1", "unix:/nowhere"):
            self.assertFalse(warned("topics", "list", "-s", server), server)
        self.assertNotIn("travels", narad("topics", "list", "-s", "0.0.0.0:1").err)

    def test_a_password_argument_is_overwritten_for_ps(self):
        self.ask("topics", "create", "orders-ps", NARAD_USER="ann", NARAD_PASS=SECRETS["ann"])
        for flags in (("-p", SECRETS["ann"]), ("--password=" + SECRETS["ann"],),
                      ("-p", SECRETS["ann"], "-p", SECRETS["ann"])):
            process = self.open("sub", "orders-ps", "--raw", "-u", "ann", *flags, stdout=subprocess.PIPE)
            self.ask("produce", "orders-ps", stdin=b"x", NARAD_USER="ann", NARAD_PASS=SECRETS["ann"])
            self.assertEqual(process.stdout.readline(), b"x\n")  # it has connected
            with open(f"/proc/{process.pid}/cmdline", "rb") as file:
                words = file.read()
            self.assertIn(b"sub", words)
            self.assertNotIn(SECRETS["ann"].encode(), words)
            self.end(process)

    def test_the_terminal_is_asked_without_echo(self):
        status, shown = at_terminal([NARAD, "topics", "list", "-u", "ann", "-s", self.node.address],
                                    [("Password of ann: ", SECRETS["ann"])])
        self.assertEqual(status, 0, shown)
        self.assertIn("PARTITIONS", shown)
        self.assertNotIn(SECRETS["ann"], shown)
        words = [NARAD, "users", "create", "typed", "-u", "admin", "-s", self.node.address]
        status, shown = at_terminal(words, [("Password of admin: ", ROOT), ("New password of typed: ", "one"),
                                            ("Again: ", "two")])
        self.assertEqual(status, 1, shown)
        self.assertIn("the two are not the same", shown)
        status, shown = at_terminal(words, [("Password of admin: ", ROOT), ("New password of typed: ", "Typed-1"),
                                            ("Again: ", "Typed-1")])
        self.assertEqual(status, 0, shown)
        self.assertNotIn("Typed-1", shown)
        self.ask("topics", "list", "-u", "typed", "-p", "Typed-1")

    def test_an_interrupt_ends_the_question(self):
        status, shown = at_terminal([NARAD, "topics", "list", "-u", "ann", "-s", self.node.address],
                                    [("Password of ann: ", "abc\x03")])
        self.assertEqual(status, -signal.SIGINT)  # as scripts expect it
        self.assertEqual(shown.count("narad: interrupted"), 1, shown)

    def test_whatever_ends_the_question_gives_the_echo_back(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            with self.subTest(number), Terminal("topics", "list", "-u", "ann", "-s", self.node.address) as terminal:
                terminal.wait_for("Password of ann: ")
                self.assertFalse(terminal.echoes())
                terminal.type("half of it")
                os.kill(terminal.command(), number)
                terminal.wait_for(f"status {128 + number}\r\n")
                self.assertTrue(terminal.echoes())
                self.assertIn("narad: interrupted", terminal.shown)
                self.assertNotIn("half of it", terminal.shown)

    def test_an_interrupt_beside_an_open_connection_gives_the_echo_back(self):
        """The second question is asked when the threads of a connection are there, too."""
        words = ("users", "create", "never", "-u", "admin", "-p", ROOT, "-s", self.node.address)
        with Terminal(*words) as terminal:
            terminal.wait_for("New password of never: ")
            terminal.type("\x03")
            terminal.wait_for(f"status {128 + signal.SIGINT}\r\n")
            self.assertTrue(terminal.echoes())
        self.root("users", "get", "never", status=1, text="NOT_FOUND")

    def test_a_terminal_that_cannot_be_asked_is_told_with_its_reason(self):
        """In the background, with nobody left who could bring it to the front."""
        pid, terminal = pty.fork()
        if pid == 0:
            if os.fork() == 0:
                os.setpgid(0, 0)
                if os.fork() == 0:
                    while os.getppid() == os.getpgrp():  # its parent is there still
                        os.sched_yield()
                    os.execve(NARAD, [NARAD, "topics", "list", "-u", "ann", "-s", self.node.address], environment())
                os._exit(0)
            signal.pause()
        try:
            shown = b""
            while b"\n" not in shown:
                shown += terminal_read(terminal)
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(terminal)
        self.assertEqual(shown.decode().rstrip(), "narad: password: " + os.strerror(errno.EIO))

    def test_a_stop_gives_the_echo_back_and_asks_again(self):
        with Terminal("topics", "list", "-u", "ann", "-s", self.node.address) as terminal:
            for number in range(2):  # by key, then by kill
                terminal.wait_for("Password of ann: ")
                self.assertFalse(terminal.echoes())
                terminal.type("half")
                if number == 0:
                    terminal.type("\x1a")
                else:
                    os.kill(terminal.command(), signal.SIGTSTP)
                terminal.wait_for(f"status {128 + signal.SIGTSTP}\r\n")
                self.assertTrue(terminal.echoes())
                terminal.type("\n")
            terminal.wait_for("Password of ann: ")
            terminal.type(SECRETS["ann"] + "\n")
            terminal.wait_for("status 0\r\n")
            self.assertTrue(terminal.echoes())
            self.assertIn("PARTITIONS", terminal.shown)
            self.assertNotIn("half", terminal.shown)
            self.assertNotIn(SECRETS["ann"], terminal.shown)


class NobodyIsAdmin(unittest.TestCase):
    """The way back in that docs/SECURITY.md tells."""

    @classmethod
    def setUpClass(cls):
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "SECURITY.md")
        with open(path, encoding="utf-8") as file:
            section = file.read().split("## When nobody can manage users\n")[1].split("\n## ")[0]
        cls.serve, cls.grant, cls.passwd = re.findall(r"^```sh\n(.*?)^```$", section, re.M | re.S)

    def as_told(self, block):
        """The block, for the data of this node."""
        self.assertIn("/var/lib/narad", block)
        return f'narad() {{ "{NARAD}" "$@"; }}\n' + block.replace("/var/lib/narad", self.node.path("data"))

    def open_for_a_while(self, block, answers=()):
        """Stop the node, serve as the section says, run `block` at a terminal, stop that."""
        self.node.process.terminate()
        self.assertEqual(self.node.process.wait(timeout=PATIENCE), 0)
        self.node.dev = True
        serve = self.as_told(self.serve).replace("narad serve", f'exec "{NARAD}" serve')
        serving = subprocess.Popen(["sh", "-c", serve], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, env=environment())
        self.addCleanup(Case.end, serving)
        socket = "unix:" + self.node.path("data/narad.sock")
        wait_until(lambda: narad("users", "list", "--server", socket).status == 0, "it serves as told")
        status, shown = at_terminal(["/bin/sh", "-c", self.as_told(block)], answers)
        self.assertEqual(status, 0, shown)
        serving.terminate()
        out, _ = serving.communicate(timeout=PATIENCE)
        self.assertEqual(serving.returncode, 0, out)
        self.node.dev = False
        self.node.start(self.node.address)

    def ask(self, *words, user, password, stdin=b""):
        return narad(*words, "-s", self.node.address, "-u", user, env={"NARAD_PASS": password}, stdin=stdin)

    def test_a_user_becomes_the_admin_that_there_is_not(self):
        self.node = Node()
        self.addCleanup(shutil.rmtree, self.node.directory, True)
        self.addCleanup(lambda: self.node.kill())
        made = narad("users", "create", "ann", "--user-password-stdin", "-s", self.node.address,
                     stdin=SECRETS["ann"].encode())
        self.assertEqual(made.status, 0, made)
        self.node.process.terminate()
        self.node.process.wait(timeout=PATIENCE)
        self.node.dev, self.node.env = False, {"NARAD_ADMIN_PASSWORD": ROOT}
        self.node.start(self.node.address)
        wait_until(lambda: "no user is an admin" in self.node.log(), "it is told")
        shut = self.ask("users", "list", user="ann", password=SECRETS["ann"])
        self.assertIn("PERMISSION_DENIED", shut.err)
        self.assertIn("UNAUTHENTICATED", self.ask("users", "list", user="admin", password=ROOT).err)

        self.open_for_a_while(self.grant)

        made = self.ask("users", "create", "bob", "--user-password-stdin", user="ann", password=SECRETS["ann"],
                        stdin=SECRETS["bob"].encode())
        self.assertEqual(made.status, 0, made)
        self.assertEqual(self.ask("topics", "list", user="bob", password=SECRETS["bob"]).status, 0)
        self.assertEqual(narad("users", "list", "-s", self.node.address).status, 1)  # security is on again

    def test_a_lost_password_of_root_is_replaced(self):
        self.node = SecuredNode()
        self.addCleanup(shutil.rmtree, self.node.directory, True)
        self.addCleanup(lambda: self.node.kill())
        self.open_for_a_while(self.passwd, [("New password of admin: ", "found-again"), ("Again: ", "found-again")])
        self.assertEqual(self.ask("users", "list", user="admin", password="found-again").status, 0)
        self.assertIn("UNAUTHENTICATED", self.ask("users", "list", user="admin", password=ROOT).err)


class SecretScan(unittest.TestCase):
    def test_no_password_is_in_logs_metrics_or_data(self):
        node = SecuredNode()
        self.addCleanup(shutil.rmtree, node.directory, True)
        self.addCleanup(node.kill)
        narad("users", "create", "ann", "--user-password-stdin", *node.root, env={"NARAD_PASS": ROOT},
              stdin=SECRETS["ann"].encode())
        for password in (SECRETS["ann"], "a wrong password"):
            narad("topics", "list", "-u", "ann", "-p", password, "-s", node.address)
        metrics = narad("metrics", *node.root, env={"NARAD_PASS": ROOT})
        self.assertEqual(metrics.status, 0, metrics)
        for secret in (ROOT, SECRETS["ann"], "a wrong password"):
            self.assertNotIn(secret, metrics.out)
            self.assertNotIn(secret, node.log())
            for directory, _, names in os.walk(node.path("data")):
                for name in names:
                    path = os.path.join(directory, name)
                    if os.path.isfile(path):
                        with open(path, "rb") as file:
                            self.assertNotIn(secret.encode(), file.read(), path)


class Terminal:
    """A command as a job of a shell on a terminal of its own: the terminal stays when the command has ended. The
    shell says the command's status, and after a line goes on with one that was stopped."""

    JOB = """trap : INT; set -m
             "$@"; status=$?
             while echo "status $status"; read line; do fg >/dev/null; status=$?; done"""

    def __init__(self, *words):
        self.shown = ""
        self.seen = 0
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.execve("/bin/sh", ["sh", "-c", self.JOB, "sh", NARAD, *words], environment())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.kill(self.pid, signal.SIGKILL)
        os.close(self.file)
        os.waitpid(self.pid, 0)

    def wait_for(self, text):
        """The terminal shows it, behind what was waited for before."""
        while text not in self.shown[self.seen:]:
            self.shown += terminal_read(self.file).decode("utf-8", "replace")
        self.seen = self.shown.index(text, self.seen) + len(text)

    def type(self, text):
        os.write(self.file, text.encode())

    def echoes(self):
        return bool(termios.tcgetattr(self.file)[3] & termios.ECHO)

    def command(self):
        with open(f"/proc/{self.pid}/task/{self.pid}/children", encoding="ascii") as file:
            return int(file.read().split()[0])


def at_terminal(words, answers):
    """Run a command on a terminal of its own; (exit status, all that the terminal showed)."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(words[0], words, environment())
    shown = b""
    try:
        for question, answer in answers:
            start = len(shown)
            while question.encode() not in shown[start:]:
                shown += terminal_read(terminal)
            os.write(terminal, answer.encode() + b"\n")
        while True:
            shown += terminal_read(terminal)
    except (EOFError, OSError):  # it ended
        pass
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), shown.decode("utf-8", "replace")


def terminal_read(terminal):
    ready, _, _ = select.select([terminal], [], [], PATIENCE)
    if not ready:
        raise AssertionError("the terminal shows nothing")
    data = os.read(terminal, 4096)
    if not data:
        raise EOFError
    return data


if __name__ == "__main__":
    unittest.main()
