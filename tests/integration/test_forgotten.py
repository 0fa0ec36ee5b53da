#!/usr/bin/python3
"""A password is in the memory of a node only while it is checked or hashed: what of the node is looked at,
byte for byte, after requests that took it and requests that refused it."""

import json
import unittest
import urllib.error
import urllib.request

import grpc

from nodes import CODE, PATIENCE, admin_pb2, wait_until
from people import ROOT_PASSWORD, Person, SecureNode, basic, grant

MAPPING_MAX = 1 << 30  # larger ones are no memory but what a sanitizer reserves


def memory(pid):
    """All that the process could read, one mapping after the other."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "rb", 0) as file:
        for line in maps:
            first, last = (int(end, 16) for end in line.split()[0].split("-"))
            if line.split()[1][0] != "r" or last - first > MAPPING_MAX:
                continue
            try:
                file.seek(first)
                yield file.read(last - first)
            except (OSError, OverflowError):  # a page of the kernel, or gone meanwhile
                pass


class Forgotten(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = SecureNode()
        cls.ann = cls.node.add("ann", grant("produce", "x"), password="the first password of ann")

    @classmethod
    def tearDownClass(cls):
        cls.node.close()

    def left(self, texts):
        """Which of them the node still holds."""
        found = set()
        for part in memory(self.node.process.pid):
            found.update(text for text in texts if text.encode() in part)
        return found

    def forgets(self, *texts):
        # A call ends a moment after its answer.
        wait_until(lambda: not self.left(texts), "the node forgets " + ", ".join(texts))

    def refused(self, code, call, request):
        with self.assertRaises(grpc.RpcError) as caught:
            call(request, timeout=PATIENCE)
        self.assertEqual(caught.exception.code(), code)

    def test_the_look_finds_what_is_there(self):
        """The header that a connection repeats stays with the transport: docs/SECURITY.md says so."""
        header = basic("ann", "the first password of ann")[0][1]
        self.ann.access()
        self.assertEqual(self.left([header]), {header})

    def test_what_logged_in_is_forgotten(self):
        bob = self.node.add("bob", password="password-of-bob-once")
        bob.access()
        self.refused(CODE.UNAUTHENTICATED, Person(self.node, "bob", "wrong-for-bob").admin.CheckAccess,
                     admin_pb2.CheckAccessRequest())
        self.forgets("password-of-bob-once", "wrong-for-bob")

    def http(self, status, method, path, who, **members):
        with open(self.node.path("ready.json"), encoding="utf-8") as file:
            address = json.load(file)["http_addr"]
        request = urllib.request.Request(f"http://{address}{path}", method=method, data=json.dumps(members).encode(),
                                         headers={"Authorization": basic(*who)[0][1]})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                self.assertEqual(answer.status, status)
        except urllib.error.HTTPError as refusal:
            self.assertEqual(refusal.code, status)

    def test_passwords_that_come_by_http_are_forgotten(self):
        root = ("admin", ROOT_PASSWORD)
        self.http(201, "POST", "/v1/users", root, username="flo", password="made-over-http", grants=[])
        self.http(204, "PUT", "/v1/users/flo/password", root, new_password="set-over-http")
        self.http(204, "PUT", "/v1/users/flo/password", ("flo", "set-over-http"), new_password="own-over-http",
                  current_password="set-over-http")
        flo = ("flo", "own-over-http")
        self.http(401, "GET", "/v1/topics", ("flo", "guessed-over-http"))
        self.http(401, "POST", "/v1/users", ("nobody", "x"), username="eve", password="stranger-over-http")
        self.http(403, "POST", "/v1/users", flo, username="eve", password="no-right-over-http")
        self.http(403, "PUT", "/v1/users/flo/password", flo, new_password="new-over-http",
                  current_password="wrong-over-http")
        self.http(400, "POST", "/v1/users", root, username="bad name", password="bad-name-over-http")
        self.forgets("made-over-http", "set-over-http", "own-over-http", "guessed-over-http", "stranger-over-http",
                     "no-right-over-http", "new-over-http", "wrong-over-http", "bad-name-over-http")

    def test_the_first_password_is_forgotten(self):
        """It comes by the environment, and root logged in with it."""
        with open(f"/proc/{self.node.process.pid}/maps", encoding="utf-8") as maps:
            if "/libasan.so" in maps.read():
                self.skipTest("AddressSanitizer keeps a copy of the environment")
        self.forgets(ROOT_PASSWORD)

    def test_new_passwords_are_forgotten(self):
        """Short and long, and in a request that comes in many pieces."""
        patterns = [f"a-rather-long-pattern-of-a-topic-{i}*" for i in range(60)]
        self.node.add("cid", password="Created!")
        self.node.add("dan", grant("produce", *patterns), password="Created with many patterns, " + "x" * 40)
        self.node.set_password("cid", "Changed for cid by an admin")
        Person(self.node, "cid", "Changed for cid by an admin").admin.SetPassword(admin_pb2.SetPasswordRequest(
            username="cid", current_password="Changed for cid by an admin", new_password="Changed by cid"),
            timeout=PATIENCE)
        self.forgets("Created!", "Created with many patterns, ", "Changed for cid by an admin", "Changed by cid")

    def test_passwords_of_refused_requests_are_forgotten(self):
        create, change = admin_pb2.CreateUserRequest, admin_pb2.SetPasswordRequest
        root, ann, nobody = self.node.admin, self.ann.admin, Person(self.node, "nobody", "x").admin
        self.refused(CODE.UNAUTHENTICATED, nobody.CreateUser, create(username="eve", password="from-a-stranger"))
        self.refused(CODE.PERMISSION_DENIED, ann.CreateUser, create(username="eve", password="without-a-right"))
        self.refused(CODE.PERMISSION_DENIED, ann.SetPassword,
                     change(username="ann", current_password="not-the-one-of-ann", new_password="so-not-taken"))
        self.refused(CODE.INVALID_ARGUMENT, root.CreateUser, create(username="bad name", password="for-a-bad-name"))
        self.refused(CODE.INVALID_ARGUMENT, root.CreateUser, create(username="eve", password="much-too-long" * 9))
        self.refused(CODE.INVALID_ARGUMENT, root.CreateUser, create(username="eve", password="with\0a-nul-in-it"))
        self.refused(CODE.ALREADY_EXISTS, root.CreateUser, create(username="ann", password="for-one-who-is-there"))
        self.refused(CODE.NOT_FOUND, root.SetPassword, change(username="eve", new_password="for-nobody-at-all"))
        self.refused(CODE.RESOURCE_EXHAUSTED, root.CreateUser,
                     create(username="eve", password="in-too-large-a-request" + "x" * (2 << 20)))
        self.forgets("from-a-stranger", "without-a-right", "not-the-one-of-ann", "so-not-taken", "for-a-bad-name",
                     "much-too-long", "a-nul-in-it", "for-one-who-is-there", "for-nobody-at-all",
                     "in-too-large-a-request")


if __name__ == "__main__":
    unittest.main()
