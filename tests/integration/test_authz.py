#!/usr/bin/python3
"""Who may do what over gRPC: every method for every kind of caller (I-101), and the ways in which nobody
gets more than was given (I-102)."""

import http.client
import json
import re
import unittest

import grpc

from nodes import (CODE, PATIENCE, admin_pb2, admin_pb2_grpc, broker_pb2, health_pb2, health_pb2_grpc, types_pb2,
                   wait_until)
from people import ROOT_PASSWORD, Person, SecureNode, basic, grant, refusal

TOPIC = "m-topic"
TEXTS = {
    "produce": "produce not allowed on this topic",
    "consume": "consume not allowed on this topic",
    "create": "create not allowed on this topic",
    "manage": "only the topic owner or an admin may modify this topic",
    "read": "no grant on this topic",
    "admin": "admin privileges required",
    "password": "admin required",
}
EVERYBODY = {"nogrant", "other", "literal", "prefix", "owner", "admin", "root"}
MAY = {
    "produce": {"literal", "prefix", "admin", "root"},
    "consume": {"literal", "prefix", "admin", "root"},
    "create": {"literal", "prefix", "owner", "admin", "root"},
    "manage": {"owner", "admin", "root"},
    "read": {"literal", "prefix", "owner", "admin", "root"},
    "admin": {"admin", "root"},
    "password": {"admin", "root"},
    "any": EVERYBODY,
    "metrics": EVERYBODY,
}


def record():
    return types_pb2.Record(payload=b"x")


# Each method of the services: its right, and a call of it about a topic (or user) by that name that does no
# harm when it is allowed. The names of the rights are those of rest-api.md.
def calls(topic, user):
    settle = broker_pb2.Settle(receipt_handle="0:0:1")
    admin = admin_pb2
    return {
        "Produce": ("produce", lambda p: p.broker.Produce(
            broker_pb2.ProduceRequest(topic=topic, records=[record()]), timeout=PATIENCE)),
        "ProduceStream": ("produce", lambda p: items(p.broker.ProduceStream(iter([
            broker_pb2.ProduceStreamRequest(items=[broker_pb2.ProduceItem(
                id=1, topic=topic, records=[record()])])]), timeout=PATIENCE))),
        "Consume": ("consume", lambda p: p.broker.Consume(
            broker_pb2.ConsumeRequest(topic=topic), timeout=PATIENCE)),
        "ConsumeStream": ("consume", lambda p: items(p.broker.ConsumeStream(iter([
            broker_pb2.ConsumeStreamRequest(polls=[broker_pb2.Poll(id=1, topic=topic)])]), timeout=PATIENCE))),
        "Subscribe": ("consume", lambda p: list(p.broker.Subscribe(iter([broker_pb2.SubscribeRequest(
            start=broker_pb2.SubscribeStart(topic=topic))]), timeout=PATIENCE))),
        "Ack": ("consume", lambda p: p.broker.Ack(
            broker_pb2.AckRequest(topic=topic, settles=[settle]), timeout=PATIENCE)),
        "AckStream": ("consume", lambda p: items(p.broker.AckStream(iter([
            broker_pb2.AckStreamRequest(items=[broker_pb2.AckItem(id=1, topic=topic, settles=[settle])])]),
            timeout=PATIENCE))),
        "Replay": ("consume", lambda p: list(p.broker.Replay(
            broker_pb2.ReplayRequest(topic=topic, max_messages=1), timeout=PATIENCE))),
        "CreateTopic": ("create", lambda p: p.admin.CreateTopic(
            admin.CreateTopicRequest(name=topic, partitions=1), timeout=PATIENCE)),  # too few: refused later
        "GetTopic": ("read", lambda p: p.admin.GetTopic(admin.GetTopicRequest(name=topic), timeout=PATIENCE)),
        "ListTopics": ("any", lambda p: p.admin.ListTopics(admin.ListTopicsRequest(), timeout=PATIENCE)),
        "AlterTopic": ("manage", lambda p: p.admin.AlterTopic(  # nothing to alter: refused later
            admin.AlterTopicRequest(name=topic), timeout=PATIENCE)),
        "DeleteTopic": ("manage", lambda p: p.admin.DeleteTopic(
            admin.DeleteTopicRequest(name=topic), timeout=PATIENCE)),
        "Metrics": ("metrics", lambda p: p.admin.Metrics(admin.MetricsRequest(), timeout=PATIENCE)),
        "Version": ("any", lambda p: p.admin.Version(admin.VersionRequest(), timeout=PATIENCE)),
        "CreateUser": ("admin", lambda p: p.admin.CreateUser(
            admin.CreateUserRequest(username=user, password="x"), timeout=PATIENCE)),
        "GetUser": ("admin", lambda p: p.admin.GetUser(admin.GetUserRequest(username=user), timeout=PATIENCE)),
        "ListUsers": ("admin", lambda p: p.admin.ListUsers(admin.ListUsersRequest(), timeout=PATIENCE)),
        "DeleteUser": ("admin", lambda p: p.admin.DeleteUser(
            admin.DeleteUserRequest(username="nobody-at-all"), timeout=PATIENCE)),
        "SetGrants": ("admin", lambda p: p.admin.SetGrants(
            admin.SetGrantsRequest(username=user), timeout=PATIENCE)),
        "SetPassword": ("password", lambda p: p.admin.SetPassword(
            admin.SetPasswordRequest(username=user, new_password="new"), timeout=PATIENCE)),
        "CheckAccess": ("any", lambda p: p.access()),
    }


class ItemRefused(Exception):
    """An item of a stream was, and the stream was not."""

    def __init__(self, result):
        super().__init__(result)
        self.result = result


def items(responses):
    for response in responses:
        for result in response.results:
            if result.code != 0:
                raise ItemRefused(result)


def outcome(call, person):
    """(code, text, reason); code OK when it was let in and done."""
    try:
        call(person)
    except ItemRefused as item:
        codes = {code.value[0]: code for code in CODE}
        return codes[item.result.code], item.result.error, item.result.reason
    except grpc.RpcError as error:
        return refusal(error)
    return CODE.OK, "", None


class Matrix:
    """One profile."""
    env = {}

    @classmethod
    def setUpClass(cls):
        cls.node = node = SecureNode(**cls.env)
        cls.people = {
            "nogrant": node.add("nogrant"),
            "other": node.add("other", *[grant(a, "x-*", "m-topi", "m-topic2")
                                         for a in ("produce", "consume", "create")]),
            "literal": node.add("literal", *[grant(a, TOPIC) for a in ("produce", "consume", "create")]),
            "prefix": node.add("prefix", *[grant(a, "m-*") for a in ("produce", "consume", "create")]),
            "owner": node.add("owner", grant("create", TOPIC)),
            "admin": node.add("second", grant("admin")),
            "root": node.root,
        }
        cls.strangers = {
            "none": Person(node),
            "wrong password": Person(node, "admin", ROOT_PASSWORD + "x"),
            "unknown user": Person(node, "ghost", "pw"),
            "garbage": Person(node, "admin", "\x01"),
        }
        node.add("victim")

    @classmethod
    def tearDownClass(cls):
        cls.node.close()

    def own_topic(self):
        """Owner's, whatever was done to it."""
        try:
            self.people["owner"].admin.CreateTopic(admin_pb2.CreateTopicRequest(name=TOPIC), timeout=PATIENCE)
        except grpc.RpcError as error:
            self.assertEqual(error.code(), CODE.ALREADY_EXISTS)

    def may(self, right):
        return MAY[right]

    def test_the_table_has_every_method(self):
        names = [m.name for file in (broker_pb2, admin_pb2) for service in ("Broker", "Admin")
                 if service in file.DESCRIPTOR.services_by_name
                 for m in file.DESCRIPTOR.services_by_name[service].methods]
        self.assertEqual(sorted(names), sorted(calls("t", "u")))

    def test_authz_matrix(self):
        for name, (right, call) in calls(TOPIC, "victim").items():
            for who, person in self.people.items():
                with self.subTest(method=name, who=who):
                    self.own_topic()
                    code, text, reason = outcome(call, person)
                    if who in self.may(right):
                        self.assertNotIn(code, (CODE.PERMISSION_DENIED, CODE.UNAUTHENTICATED), text)
                    else:
                        self.assertEqual((code, text, reason),
                                         (CODE.PERMISSION_DENIED, TEXTS[right], "PERMISSION_DENIED"))

    def test_strangers_get_nowhere(self):
        self.own_topic()
        for name, (right, call) in calls(TOPIC, "victim").items():
            for who, person in self.strangers.items():
                with self.subTest(method=name, who=who):
                    code, text, reason = outcome(call, person)
                    if right == "metrics" and self.metrics_open:
                        self.assertEqual(code, CODE.OK)
                    else:
                        self.assertEqual((code, text, reason),
                                         (CODE.UNAUTHENTICATED, "authentication required", "UNAUTHENTICATED"))

    def test_the_right_comes_before_the_existence(self):
        """Who may not, does not learn what there is; who may manage anything learns that it is not there."""
        for name, (right, call) in calls("m-never", "victim").items():
            if right not in ("produce", "consume", "manage"):
                continue
            for who, person in self.people.items():
                with self.subTest(method=name, who=who):
                    allowed = self.may(right) - {"literal"} if right != "manage" else EVERYBODY
                    code, text, _ = outcome(call, person)
                    if who in allowed:
                        expected = CODE.INVALID_ARGUMENT if name == "AlterTopic" else CODE.NOT_FOUND
                        self.assertEqual(code, expected, text)
                    else:
                        self.assertEqual((code, text), (CODE.PERMISSION_DENIED, TEXTS[right]))

    def test_health_and_reflection_need_no_credentials(self):
        stub = health_pb2_grpc.HealthStub(self.node.channel)
        status = stub.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE).status
        self.assertEqual(status, health_pb2.HealthCheckResponse.SERVING)

    def test_check_access_says_what_doing_it_would(self):
        actions = {"produce": admin_pb2.ACTION_PRODUCE, "consume": admin_pb2.ACTION_CONSUME,
                   "create": admin_pb2.ACTION_CREATE, "manage": admin_pb2.ACTION_MANAGE,
                   "read": admin_pb2.ACTION_READ, "admin": admin_pb2.ACTION_ADMIN}
        self.own_topic()
        for right, action in actions.items():
            for who, person in self.people.items():
                with self.subTest(right=right, who=who):
                    code, text, _ = outcome(lambda p, a=action: p.access(a, TOPIC), person)
                    self.assertEqual((code, text), (CODE.OK, "") if who in self.may(right)
                                     else (CODE.PERMISSION_DENIED, TEXTS[right]))
        me = self.people["literal"]
        self.assertEqual(me.access(admin_pb2.ACTION_SET_PASSWORD, "literal").username, "literal")
        self.assertEqual(outcome(lambda p: p.access(admin_pb2.ACTION_SET_PASSWORD, "victim"), me)[1],
                         TEXTS["password"])
        answers = {who: self.people[who].access() for who in ("root", "admin", "owner")}
        self.assertEqual({who: (a.root, a.admin, a.security_enabled) for who, a in answers.items()},
                         {"root": (True, True, True), "admin": (False, True, True),
                          "owner": (False, False, True)})
        code, text, _ = outcome(lambda p: p.access(99), me)
        self.assertEqual(code, CODE.INVALID_ARGUMENT)
        self.assertIn("action is 99", text)

    def test_the_creator_owns_a_topic(self):
        created = self.people["prefix"].admin.CreateTopic(
            admin_pb2.CreateTopicRequest(name="m-prefix"), timeout=PATIENCE).topic
        self.assertEqual(created.owner, "prefix")
        code, text, _ = outcome(calls("m-prefix", "")["DeleteTopic"][1], self.people["owner"])
        self.assertEqual((code, text), (CODE.PERMISSION_DENIED, TEXTS["manage"]))
        self.assertEqual(outcome(calls("m-prefix", "")["DeleteTopic"][1], self.people["prefix"])[0], CODE.OK)

    def listed(self, who):
        return [t.name for t in self.people[who].admin.ListTopics(
            admin_pb2.ListTopicsRequest(), timeout=PATIENCE).topics]


class Profile12(Matrix, unittest.TestCase):
    env = {}
    metrics_open = True

    def may(self, right):
        return EVERYBODY if right == "read" else MAY[right]

    def test_everybody_sees_every_topic(self):
        self.own_topic()
        self.assertEqual(self.listed("nogrant"), self.listed("root"))


class Profile3(Matrix, unittest.TestCase):
    env = {"NARAD_COMPAT": "3"}
    metrics_open = False

    def test_topics_are_shown_to_whom_they_concern(self):
        self.own_topic()
        self.node.admin.CreateTopic(admin_pb2.CreateTopicRequest(name="a-hidden"), timeout=PATIENCE)
        self.assertEqual({who: self.listed(who) for who in ("nogrant", "literal", "owner", "admin")},
                         {"nogrant": [], "literal": [TOPIC], "owner": [TOPIC], "admin": ["a-hidden", TOPIC]})
        page = self.people["literal"].admin.ListTopics(
            admin_pb2.ListTopicsRequest(limit=1), timeout=PATIENCE)
        self.assertEqual(([t.name for t in page.topics], page.next_page_token), ([], "a-hidden"))


class Escalation(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = SecureNode()
        cls.second = cls.node.add("second", grant("admin"))
        cls.bob = cls.node.add("bob", grant("create", "b-*"), grant("produce", "b-*"))
        cls.node.add("erin", grant("consume", "e-*"))

    @classmethod
    def tearDownClass(cls):
        cls.node.close()

    def denied(self, text, call):
        code, said, reason = outcome(lambda _: call(), None)
        self.assertEqual((code, said, reason), (CODE.PERMISSION_DENIED, text, "PERMISSION_DENIED"))

    def create(self, person, username, *grants, password="pw"):
        return person.admin.CreateUser(admin_pb2.CreateUserRequest(
            username=username, password=password, grants=grants), timeout=PATIENCE)

    def grants(self, person, username, *grants):
        return person.admin.SetGrants(admin_pb2.SetGrantsRequest(
            username=username, grants=grants), timeout=PATIENCE)

    def password(self, person, username, new, current=""):
        return person.admin.SetPassword(admin_pb2.SetPasswordRequest(
            username=username, new_password=new, current_password=current), timeout=PATIENCE)

    def drop(self, person, username):
        return person.admin.DeleteUser(admin_pb2.DeleteUserRequest(username=username), timeout=PATIENCE)

    def test_no_escalation_rpc(self):
        second, bob, root = self.second, self.bob, self.node.root
        text = "cannot grant permissions you do not hold"
        self.denied(text, lambda: self.create(second, "third", grant("admin")))
        self.denied(text, lambda: self.grants(second, "bob", grant("produce", "b-*"), grant("admin")))
        self.denied("cannot modify your own grants", lambda: self.grants(second, "second", grant("admin")))
        self.denied("cannot modify your own grants", lambda: self.grants(root, "admin"))
        self.denied("the root admin's grants are immutable", lambda: self.grants(second, "admin"))
        self.denied("the root admin cannot be deleted", lambda: self.drop(second, "admin"))
        self.denied("the root admin cannot be deleted", lambda: self.drop(root, "admin"))
        self.denied("cannot delete your own account", lambda: self.drop(second, "second"))
        self.denied("only the root admin may change the root password",
                    lambda: self.password(second, "admin", "mine"))
        self.denied("admin required", lambda: self.password(bob, "second", "mine"))
        self.denied("admin required", lambda: self.password(bob, "admin", "mine"))
        self.denied("admin required", lambda: self.password(bob, "ghost", "mine"))
        for call in (lambda: self.create(bob, "x", grant("produce", "b-*")),
                     lambda: self.grants(bob, "bob", grant("produce", "*")), lambda: self.drop(bob, "erin")):
            self.denied("admin privileges required", call)

        users = {u.username: u for u in self.node.admin.ListUsers(
            admin_pb2.ListUsersRequest(), timeout=PATIENCE).users}
        self.assertEqual({name for name, u in users.items() if u.root}, {"admin"})
        self.assertEqual({name for name, u in users.items() if any(g.action == "admin" for g in u.grants)},
                         {"second"})
        self.assertEqual([g.action for g in users["bob"].grants], ["create", "produce"])
        self.assertEqual(list(users["admin"].grants), [])
        self.assertTrue(root.access().root)

    def test_an_admin_gives_what_is_scoped_and_root_gives_all(self):
        made = self.create(self.second, "scoped", grant("produce", "*"), grant("create", "q"))
        self.assertEqual([(g.action, list(g.patterns)) for g in made.user.grants],
                         [("produce", ["*"]), ("create", ["q"])])
        self.assertEqual(self.create(self.node.root, "third", grant("admin")).user.grants[0].action, "admin")
        self.drop(self.node.root, "third")
        self.drop(self.second, "scoped")

    def test_a_password_is_changed_by_who_knows_it(self):
        erin = Person(self.node, "erin", "pw")
        for current in ("", "wrong", "p" * 100):
            self.denied("current password is incorrect", lambda c=current: self.password(erin, "erin", "n", c))
        self.password(erin, "erin", "new", "pw")
        self.assertEqual(outcome(lambda p: p.access(), erin)[0], CODE.UNAUTHENTICATED)
        erin = Person(self.node, "erin", "new")
        self.assertEqual(erin.access().username, "erin")
        user = self.node.admin.GetUser(admin_pb2.GetUserRequest(username="erin"), timeout=PATIENCE).user
        self.assertEqual([g.action for g in user.grants], ["consume"])
        self.password(self.second, "erin", "pw")  # an admin needs no present one
        self.password(self.second, "second", "pw2")
        self.password(Person(self.node, "second", "pw2"), "second", "pw")

    def test_bad_users_are_told_in_order(self):
        create, invalid = self.create, CODE.INVALID_ARGUMENT
        name = "username must match ^[A-Za-z0-9._-]{1,64}$"
        for who, grants, password, text in (
                ("", [], "pw", name), ("a b", [], "pw", name), ("a" * 65, [], "pw", name),
                ("a b", [grant("fly", "x")], "", name), ("ok", [grant("fly", "x")], "", "password required"),
                ("ok", [], "x" * 73, "password must be at most 72 bytes"),
                ("ok", [grant("fly", "x")], "pw", 'unknown grant action "fly"'),
                ("ok", [grant("produce")], "pw", 'grant "produce" requires at least one topic pattern'),
                ("ok", [grant("produce", "")], "pw", 'grant "produce" has an empty pattern'),
                ("ok", [grant("admin", "x")], "pw", "admin grants are global and must not carry patterns"),
                ("ok", [grant("consume", "a*b")], "pw",
                 'grant "consume" pattern "a*b" must be a topic name with an optional trailing \'*\'')):
            with self.subTest(text=text):
                code, said, _ = outcome(lambda _: create(self.node.root, who, *grants, password=password), None)
                self.assertEqual((code, said), (invalid, text))
        code, said, reason = outcome(lambda _: create(self.node.root, "bob"), None)
        self.assertEqual((code, said, reason), (CODE.ALREADY_EXISTS, "already exists", "ALREADY_EXISTS"))
        for call in (lambda: self.drop(self.node.root, "ghost"), lambda: self.grants(self.node.root, "ghost"),
                     lambda: self.password(self.node.root, "ghost", "x"),
                     lambda: self.node.admin.GetUser(admin_pb2.GetUserRequest(username="ghost"),
                                                     timeout=PATIENCE)):
            self.assertEqual(outcome(lambda _: call(), None), (CODE.NOT_FOUND, "not found", "NOT_FOUND"))
        code, said, _ = outcome(lambda _: self.password(self.node.root, "bob", ""), None)
        self.assertEqual((code, said), (invalid, "new_password required"))


class Audit(unittest.TestCase):
    """On a node of its own: of one event ten lines a second are logged."""

    def test_what_was_done_is_in_the_audit_log_and_no_secret_is(self):
        node = SecureNode()
        self.addCleanup(node.close)
        bob = node.add("bob", grant("create", "b-*"))
        node.add("logged", grant("produce", "l"), password="hush-hush-1")
        node.set_password("logged", "hush-hush-2")
        node.set_grants("logged")
        node.delete("logged")
        for name, code in (("other", CODE.PERMISSION_DENIED), ("b-1", CODE.OK)):
            self.assertEqual(outcome(lambda p, n=name: p.admin.CreateTopic(
                admin_pb2.CreateTopicRequest(name=n), timeout=PATIENCE), bob)[0], code)
        bob.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(name="b-1"), timeout=PATIENCE)
        lines = {(a["msg"], a["actor"], a["subject"], a["outcome"]) for a in node.audit() if "subject" in a}
        self.assertLessEqual({
            ("user create", "admin", "logged", "ok"), ("user password", "admin", "logged", "ok"),
            ("user grants", "admin", "logged", "ok"), ("user delete", "admin", "logged", "ok"),
            ("topic create", "bob", "other", "denied"), ("topic create", "bob", "b-1", "ok"),
            ("topic delete", "bob", "b-1", "ok")}, lines)
        metrics = node.admin.Metrics(admin_pb2.MetricsRequest(), timeout=PATIENCE).text
        for text in (node.log(), metrics):
            for secret in ("hush-hush", ROOT_PASSWORD, "$2b$", basic("admin", ROOT_PASSWORD)[0][1][6:]):
                self.assertNotIn(secret, text)

    def ready(self, node, name):
        with open(node.path("ready.json"), encoding="utf-8") as file:
            return json.load(file)[name]

    def over_http(self, node, name, username, password):
        """Produce and ask for users: over a shared stream, and as a call."""
        connection = http.client.HTTPConnection(self.ready(node, "http_addr"), timeout=PATIENCE)
        self.addCleanup(connection.close)
        for method, path, body in (("POST", "/v1/topics/t/produce", b"x"), ("POST", "/v1/topics",
                                   json.dumps({"name": name}))):
            connection.request(method, path, body, {"Authorization": basic(username, password)[0][1]})
            connection.getresponse().read()

    def peers(self, node):
        """actor or subject -> the peers in its lines, those over TCP without their port."""
        found = {}
        for line in node.audit():
            if "peer" in line:
                peer = re.sub(r":[0-9]+$", "", line["peer"]) if line["peer"].startswith("ipv4") else line["peer"]
                found.setdefault(line.get("subject") or line["actor"], set()).add(peer)
        return found

    def test_a_line_tells_from_where_and_believes_the_gateway_only(self):
        node = SecureNode()
        self.addCleanup(node.close)
        def stranger_is_told():  # not at once where ten lines of that second are there already
            self.over_http(node, "unused", "stranger", "x")
            return "stranger" in self.peers(node)
        wait_until(stranger_is_told, "the line of who is not known")
        self.over_http(node, "made", "admin", ROOT_PASSWORD)
        unix = grpc.insecure_channel("unix:" + self.ready(node, "grpc_socket"))
        self.addCleanup(unix.close)
        for channel, name, told in ((node.channel, "liar", "192.0.2.7"), (unix, "local", "192.0.2.8"),
                                    (unix, "six", "2001:db8::1"), (unix, "odd", "x peer=y"), (unix, "long", "1" * 99)):
            admin_pb2_grpc.AdminStub(channel).CreateTopic(
                admin_pb2.CreateTopicRequest(name=name), timeout=PATIENCE,
                metadata=basic("admin", ROOT_PASSWORD) + [("narad-client-address", told)])
        self.assertEqual({who: peers for who, peers in self.peers(node).items() if who != "admin"}, {
            "stranger": {"http:127.0.0.1"}, "made": {"http:127.0.0.1"}, "liar": {"ipv4:127.0.0.1"},
            "local": {"http:192.0.2.8"}, "six": {"http:2001:db8::1"}, "odd": {"unix:"}, "long": {"unix:"}})


if __name__ == "__main__":
    unittest.main()
