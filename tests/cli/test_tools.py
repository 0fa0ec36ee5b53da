#!/usr/bin/python3
"""`narad verify` and `narad dump` on the directory of a node: what they say by their exit status."""

import os
import shutil
import unittest

from command import Node, narad


def flip(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x40]))


class Tools(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Node()
        cls.addClassCleanup(shutil.rmtree, cls.node.directory)
        cls.addClassCleanup(cls.node.kill)
        for words, stdin in ((("topics", "create", "orders"), b""), (("produce", "orders"), b"payload " * 100),
                             (("produce", "orders"), b"one more")):
            result = narad(*words, "--server", cls.node.address, stdin=stdin)
            assert result.status == 0, result
        cls.running = narad("verify", cls.node.path("data"))
        cls.node.kill()

    def files(self, end):
        """The files of the directory, with what can be damaged in them, whose names end so."""
        found = [os.path.join(directory, name) for directory, _, names in os.walk(self.node.path("data"))
                 for name in names if name.endswith(end)]
        return sorted(path for path in found if os.path.getsize(path) > 0)

    def log_file(self):
        """The one that holds the record."""
        for path in self.files(""):
            with open(path, "rb") as file:
                if b"payload payload" in file.read():
                    return path
        raise AssertionError("nobody has the record")

    def test_a_whole_directory_is_0(self):
        result = narad("verify", self.node.path("data"))
        self.assertEqual(result.status, 0, result)
        self.assertIn("summary", result.out)
        result = narad("verify", self.node.path("data"), "--json")
        self.assertEqual(result.status, 0, result)
        self.assertIn('"damages":0', result.out.replace(" ", ""))
        result = narad("dump", self.log_file(), "--records")
        self.assertEqual(result.status, 0, result)
        self.assertIn("payload payload", result.out)

    def test_damage_is_1(self):
        """Not of the last frame of the log: a crash may have torn that."""
        path = self.log_file()
        with open(path, "rb") as file:
            at = file.read().index(b"payload payload")
        flip(path, at)
        self.addCleanup(flip, path, at)
        for words in (("verify", self.node.path("data")), ("dump", path)):
            result = narad(*words)
            self.assertEqual(result.status, 1, result)
            self.assertIn("damage", result.out)

    def test_wrong_usage_is_2(self):
        for words in (("verify",), ("verify", "a", "b"), ("verify", "--nonsense"), ("dump",),
                      ("dump", "--nonsense")):
            result = narad(*words)
            self.assertEqual((result.status, result.out), (2, ""), words)
            self.assertIn("Usage: narad " + words[0], result.err)

    def test_what_cannot_be_read_is_3(self):
        self.assertEqual(self.running.status, 3, self.running)
        for words in (("verify", self.node.path("nowhere")), ("verify", self.node.directory),
                      ("dump", self.node.path("nowhere")), ("dump", self.node.path("ready.json"))):
            result = narad(*words)
            self.assertEqual(result.status, 3, result)
            self.assertTrue(result.err.startswith("narad " + words[0] + ": "), result)

    def test_the_worst_of_many_files_counts(self):
        result = narad("dump", self.log_file(), self.node.path("nowhere"))
        self.assertEqual(result.status, 3, result)
        self.assertIn("nowhere", result.err)


if __name__ == "__main__":
    unittest.main()
