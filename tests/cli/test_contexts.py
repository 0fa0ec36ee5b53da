#!/usr/bin/python3
"""narad ctx: the file, its modes, what wins over what, and that a password is never shown."""

import json
import os
import stat
import subprocess
import unittest

from command import NARAD, Case, certificate, environment, narad

SECRET = "Tr0ub4dor-and-3"


class Contexts(Case):
    def setUp(self):
        super().setUp()
        self.config = os.path.join(self.scratch, "own", "narad")
        self.path = os.path.join(self.config, "contexts.json")

    def ctx(self, *arguments, status=0, stdin=b"", **env):
        result = narad(*arguments, stdin=stdin, env={"NARAD_CONFIG_DIR": self.config, **env})
        self.assertEqual(result.status, status, result)
        self.assertNotIn(SECRET, result.out + result.err)
        return result

    def stored(self):
        with open(self.path, encoding="utf-8") as file:
            return json.load(file)

    def test_add_select_ls_rm(self):
        self.assertEqual(self.ctx("ctx", "ls", "--json").json(), {"selected": None, "contexts": []})
        self.assertEqual(self.ctx("ctx", "add", "one", "--server", self.node.address).err, "added\n")
        self.ctx("ctx", "add", "two", "-s", "unix:/nowhere", "-u", "ann", "--password-stdin", "--select",
                 stdin=SECRET.encode() + b"\n")
        self.assertEqual(self.ctx("ctx", "ls").out.split("\n")[1:],
                         ["  %-20s %-32s %-16s no" % ("one", self.node.address, "-"),
                          "* %-20s %-32s %-16s no" % ("two", "unix:/nowhere", "ann"), ""])
        self.assertEqual(self.ctx("ctx", "ls", "--json").json(), {"selected": "two", "contexts": [
            {"name": "one", "server": self.node.address, "has_password": False, "tls": False},
            {"name": "two", "server": "unix:/nowhere", "user": "ann", "has_password": True, "tls": False}]})
        self.assertEqual(self.stored()["contexts"]["two"]["password"], SECRET)
        self.assertEqual(self.ctx("ctx", "select", "one", "--json").json(), {"selected": "one"})
        self.ctx("topics", "list")
        self.ctx("ctx", "select", "--none")
        self.assertIsNone(self.ctx("ctx", "ls", "--json").json()["selected"])
        self.ctx("ctx", "select", "two")
        self.assertEqual(self.ctx("ctx", "rm", "two").err, "removed\n")
        self.assertEqual(list(self.stored()["contexts"]), ["one"])
        self.assertNotIn("selected", self.stored())

    def test_wrong_words_are_told_and_change_nothing(self):
        self.ctx("ctx", "add", "one", "-s", "h:1")
        before = self.stored()
        for words, text in ((("add", "one", "-s", "h:2"), 'context "one" exists: --replace overwrites it'),
                            (("add", "two"), "--server is required"),
                            (("add", "two", "-s", "h"), '--server "h": must be HOST:PORT or unix:PATH'),
                            (("add", "a b", "-s", "h:1"), '"a b": a name is 1 to 64 of A-Z'),
                            (("add", "x" * 65, "-s", "h:1"), "a name is 1 to 64"),
                            (("add", "two", "-s", "h:1", "-p", SECRET), "a password needs --user"),
                            (("add", "two", "-s", "h:1", "-u", "a", "-p", SECRET, "--password-stdin"),
                             "exclude each other"),
                            (("add", "two", "-s", "h:1", "--cert-file", "c"), "go together"),
                            (("select", "two"), 'no context "two": `narad ctx ls` lists them'),
                            (("select",), "give either a NAME or --none"),
                            (("select", "one", "--none"), "give either a NAME or --none"),
                            (("rm", "two"), 'no context "two"'), (("rm",), "missing argument: NAME")):
            result = self.ctx("ctx", *words, status=1)
            self.assertTrue(result.err.startswith("narad: "), result)
            self.assertIn(text, result.err)
            self.assertEqual(result.out, "")
        self.assertEqual(self.stored(), before)
        self.assertIn('no context "two"', self.ctx("topics", "list", "--ctx", "two", status=1).err)
        self.assertIn('no context "two"', self.ctx("topics", "list", status=1, NARAD_CTX="two").err)
        self.ctx("ctx", "add", "one", "-s", "h:2", "--replace")
        self.assertEqual(self.stored()["contexts"]["one"], {"server": "h:2"})

    def test_only_its_user_may_read_the_file(self):
        old = os.umask(0)
        try:
            self.ctx("ctx", "add", "one", "-s", "h:1", "-u", "ann", "-p", SECRET)
            self.ctx("ctx", "add", "two", "-s", "h:1")
        finally:
            os.umask(old)
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(os.stat(self.config).st_mode), 0o700)
        self.assertEqual(os.listdir(self.config), ["contexts.json"])  # nothing of the replacing is left
        os.chmod(self.path, 0o644)
        self.assertIn("others may read it", self.ctx("ctx", "ls").err)
        self.ctx("ctx", "rm", "two")
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o600)
        self.assertEqual(self.ctx("ctx", "ls").err, "")

    def test_a_file_without_passwords_may_be_open(self):
        self.ctx("ctx", "add", "one", "-s", "h:1")
        os.chmod(self.path, 0o644)
        self.assertEqual(self.ctx("ctx", "ls").err, "")

    def test_the_directory_follows_the_variables(self):
        home = os.path.join(self.scratch, "home")
        for env, where in (({"NARAD_CONFIG_DIR": "", "XDG_CONFIG_HOME": "", "HOME": home}, ".config/narad"),
                           ({"NARAD_CONFIG_DIR": "", "XDG_CONFIG_HOME": home + "/xdg", "HOME": home},
                            "xdg/narad")):
            self.ctx("ctx", "add", "one", "-s", "h:1", **env)
            self.assertTrue(os.path.exists(os.path.join(home, where, "contexts.json")), where)
        nowhere = {"NARAD_CONFIG_DIR": "", "XDG_CONFIG_HOME": "", "HOME": ""}
        self.assertIn("set NARAD_CONFIG_DIR or HOME", self.ctx("ctx", "add", "a", "-s", "h:1", status=1, **nowhere).err)
        self.assertEqual(self.ctx("ctx", "ls", "--json", **nowhere).json()["contexts"], [])
        self.assertEqual(self.ctx("topics", "list", "-s", self.node.address, **nowhere).status, 0)

    def test_a_file_that_is_none_of_ours_is_told_and_kept(self):
        os.makedirs(self.config)
        for text, says in (('{"contexts": {"a": {"server": "h:1", "password": "%s"' % SECRET, "line 1: not JSON"),
                           ('[]', '"contexts" is not an object'), ('{"contexts": 7}', '"contexts" is not an object'),
                           ('{"contexts": {"a": {}}}', 'a context has no "server"'),
                           ('{"contexts": {"a": {"server": "h:1", "user": 7}}}', "is not a text"),
                           ('{"contexts": {}, "selected": 1}', '"selected" is not a text')):
            with open(self.path, "w", encoding="utf-8") as file:
                file.write(text)
            for words in (("ctx", "ls"), ("ctx", "add", "b", "-s", "h:1"), ("topics", "list")):
                result = self.ctx(*words, status=1)
                self.assertIn(self.path + ": ", result.err)
                self.assertIn(says, result.err)
            with open(self.path, encoding="utf-8") as file:
                self.assertEqual(file.read(), text)

    def test_many_at_a_time_are_all_kept(self):
        env = environment(NARAD_CONFIG_DIR=self.config)
        running = [subprocess.Popen([NARAD, "ctx", "add", f"c{i}", "-s", "h:1"], env=env, stderr=subprocess.PIPE)
                   for i in range(24)]
        for process in running:
            self.assertEqual((process.communicate()[1], process.returncode), (b"added\n", 0))
        self.assertEqual(sorted(self.stored()["contexts"]), sorted(f"c{i}" for i in range(24)))

    def test_files_are_remembered_by_their_whole_path(self):
        directory, name = os.path.split(certificate("ca.pem"))
        subprocess.run([NARAD, "ctx", "add", "one", "-s", "h:1", "--ca-file", name], check=True, cwd=directory,
                       env=environment(NARAD_CONFIG_DIR=self.config), capture_output=True)
        self.assertEqual(self.stored()["contexts"]["one"],
                         {"server": "h:1", "ca_file": os.path.realpath(certificate("ca.pem")), "tls": True})

    def test_a_flag_wins_over_a_variable_over_the_context_over_the_default(self):
        dead = {name: f"127.0.0.1:{port}" for port, name in ((1, "flag"), (2, "variable"), (3, "context"))}

        def asked(*flags, **env):
            return self.ctx("topics", "list", *flags, status=1, **env).err

        self.ctx("ctx", "add", "selected", "-s", dead["context"], "--select")
        self.ctx("ctx", "add", "named", "-s", "127.0.0.1:4")
        self.assertIn("127.0.0.1:1:", asked("-s", dead["flag"], NARAD_SERVER=dead["variable"]))
        self.assertIn("127.0.0.1:2:", asked(NARAD_SERVER=dead["variable"]))
        self.assertIn("127.0.0.1:3:", asked())
        self.assertIn("127.0.0.1:3:", asked(NARAD_SERVER=""))
        self.assertIn("127.0.0.1:4:", asked("--ctx", "named"))
        self.assertIn("127.0.0.1:4:", asked(NARAD_CTX="named"))
        self.assertIn("127.0.0.1:3:", asked("--ctx", "selected", NARAD_CTX="named"))
        self.assertIn("127.0.0.1:2:", asked("--ctx", "named", NARAD_SERVER=dead["variable"]))
        self.assertIn("127.0.0.1:1:", asked("--ctx", "named", "-s", dead["flag"]))

    def test_a_context_with_another_server_is_left_out(self):
        self.ctx("ctx", "add", "secure", "-s", "127.0.0.1:3", "--ca-file", "/nowhere/ca.pem", "-u", "ann", "-p",
                 SECRET, "--select")
        self.ctx("topics", "list", "-s", self.node.address)  # no TLS, no user, or it would fail
        self.ctx("topics", "list", NARAD_SERVER=self.node.address)
        self.assertIn("/nowhere/ca.pem", self.ctx("topics", "list", status=1).err)


if __name__ == "__main__":
    unittest.main()
