"""Who may do what, over every route (I-101), and that nobody raises what he may do (I-102)."""

import threading

from cases import SEC, Topic, case, check, equal, grant, table

WHO = ["nobody", "wrong", "no-grant", "literal", "prefix", "owner", "admin", "root"]


class Stage:
    """One user of each kind, and topics of the owner. Made once, for a check of a password costs much."""

    lock, made = threading.Lock(), {}

    def __init__(self, c):
        self.base = c.fresh("m-")
        names = [f"{self.base}-{n}" for n in range(3 * len(ROUTES))]
        owner = c.user(("create", self.base + "*"))
        for name in names:
            c.topic(name=name, api=owner)
        c.api.put(f"/v1/users/{owner.credentials[0]}/grants", {"grants": []}).expect(200)
        self.topics = iter(names)
        self.made_by_literal = self.base + "-literal"
        actions = ("produce", "consume", "create")
        self.who = {
            "nobody": c.api.anonymous(), "wrong": c.api.by("admin-of-nothing", "wrong"), "no-grant": c.user(),
            "literal": c.user(*[(a, *names, self.made_by_literal) for a in actions]),
            "prefix": c.user(*[(a, self.base + "-*") for a in actions]), "owner": owner,
            "admin": c.user(("admin",)), "root": c.api,
        }

    @classmethod
    def of(cls, c):
        with cls.lock:
            if c.api.base_url not in cls.made:
                cls.made[c.api.base_url] = cls(c)
            return cls.made[c.api.base_url]


class Scene:
    """The stage for one case."""

    def __init__(self, c):
        self.c, self.stage = c, Stage.of(c)
        self.who, self.base = self.stage.who, self.stage.base
        self.topic = self.fresh_topic()

    def fresh_topic(self):
        """Of the owner; nobody else uses it."""
        with Stage.lock:
            return Topic(self.c.api, next(self.stage.topics))

    def doomed(self):
        """The topic to be deleted; the next one when the last is gone."""
        if self.c.api.get(self.topic.path).status == 404:
            self.topic = self.fresh_topic()
        return self.topic

    def victim(self):
        return self.c.user().credentials[0]


def handle_of(scene):
    scene.topic.put()
    return scene.topic.take()["receipt_handle"]


USERS = {"no-grant": 403, "literal": 403, "prefix": 403, "owner": 403}  # all but admins
MANAGE = {"no-grant": 403, "literal": 403, "prefix": 403}
DATA = {"no-grant": 403, "owner": 403}
ANY = {}

# name, who is refused with what (besides nobody and wrong: 401), the status of the others, the request
ROUTES = [
    ("POST-topics", DATA, 201, lambda s, api, who: api.post("/v1/topics", {
        "name": s.stage.made_by_literal if who == "literal" else s.c.fresh(s.base + "-" + who)})),
    ("GET-topics", ANY, 200, lambda s, api, who: api.get("/v1/topics")),
    ("GET-topic", ANY, 200, lambda s, api, who: api.get(s.topic.path)),
    ("PATCH-topic", MANAGE, 200, lambda s, api, who: api.patch(s.topic.path, {"retention_ms": 7200000})),
    ("DELETE-topic", MANAGE, 204, lambda s, api, who: api.delete(s.doomed().path)),
    ("produce", DATA, 202, lambda s, api, who: s.topic.by(api).produce()),
    ("produce-batch", DATA, 202, lambda s, api, who: api.post(f"{s.topic.path}/produce/batch", {"messages": [{"payload": 1}]})),
    ("consume", DATA, 204, lambda s, api, who: s.topic.by(api).consume("?partition=2")),
    ("replay", DATA, 204, lambda s, api, who: s.topic.by(api).consume("?partition=2&offset=5")),
    ("consume-batch", DATA, 204, lambda s, api, who: s.topic.by(api).consume("?partition=2&max=5", headers={"X-Narad-Client": "t"})),
    ("ack", DATA, 204, lambda s, api, who: s.topic.by(api).settle(handle_of(s))),
    ("extend", DATA, 204, lambda s, api, who: s.topic.by(api).settle(handle_of(s), "&extend=true")),
    ("nack", DATA, 204, lambda s, api, who: s.topic.by(api).settle(handle_of(s), "&extend=0")),
    ("ack-batch", DATA, 200, lambda s, api, who: api.post(f"{s.topic.path}/ack", {"receipt_handles": ["0:0:1"]})),
    ("POST-users", USERS, 201, lambda s, api, who: api.post("/v1/users", {"username": s.c.fresh("u")[-50:], "password": "x"})),
    ("GET-users", USERS, 200, lambda s, api, who: api.get("/v1/users")),
    ("GET-user", USERS, 200, lambda s, api, who: api.get("/v1/users/admin")),
    ("DELETE-user", USERS, 204, lambda s, api, who: api.delete("/v1/users/" + s.victim())),
    ("PUT-grants", USERS, 200, lambda s, api, who: api.put(f"/v1/users/{s.victim()}/grants", {"grants": []})),
    ("PUT-password", USERS, 204, lambda s, api, who: api.put(f"/v1/users/{s.victim()}/password", {"new_password": "x"})),
    ("unknown-path", ANY, 404, lambda s, api, who: api.get("/v1/nope")),
    ("wrong-method", ANY, 405, lambda s, api, who: api.put("/v1/topics", {})),
]
OPEN_ROUTES = [("healthz", "/healthz"), ("readyz", "/readyz"), ("metrics", "/metrics")]


@table("authz_matrix", ROUTES, SEC)
def every_route_wants_its_right(c, refused, status, request):
    scene = Scene(c)
    for who in WHO:
        want = 401 if who in ("nobody", "wrong") else refused.get(who, status)
        answer = request(scene, scene.who[who], who)
        check(answer.status == want, f"{who}: {answer.request} -> {answer.status} {answer.body[:200]!r}, not {want}")
        if want in (401, 403):
            answer.expect(want, has="")


@table("authz_matrix/open", OPEN_ROUTES, SEC)
def these_are_for_all(c, path):
    scene = Scene(c)
    for who in WHO:
        scene.who[who].get(path).expect(200)


@case("authz_matrix/read-by-the-owner", SEC)
def an_owner_without_grants_sees_and_changes_its_topic(c):
    scene = Scene(c)
    owner = scene.who["owner"]
    equal(owner.get(scene.topic.path).expect(200).json["owner"], owner.credentials[0], "owner")
    scene.topic.by(owner).produce().expect(403)


@table("authz_matrix/action", [(action, action, want) for action, want in [
    ("produce", (202, 403, 403, 403)), ("consume", (403, 204, 204, 403)), ("create", (403, 403, 403, 201))]], SEC)
def an_action_gives_nothing_of_another(c, action, want):
    topic = c.topic(name=c.fresh("act-") + "-a")
    user = c.user((action, topic.name[:-1] + "*"))
    mine = topic.by(user)
    got = (mine.produce(query="?partition=0").status, mine.consume("?partition=1").status,
           mine.consume("?partition=1&offset=9").status, user.post("/v1/topics", {"name": topic.name[:-1] + "b"}).status)
    equal(got, want, "produce, consume, replay, create")
    ack = user.post(f"{topic.path}/ack?receipt_handle=0:0:1").status
    equal(ack, 410 if action == "consume" else 403, "ack")


# --- no escalation ---

@case("no_escalation_http/own-grants", SEC)
def nobody_changes_his_own_grants(c):
    admin, user = c.user(("admin",)), c.user(("produce", "a"))
    for who, status in ((admin, 403), (user, 403), (c.api, 403)):
        who.put(f"/v1/users/{who.credentials[0]}/grants", {"grants": [grant("admin")]}).expect(status)
    got = c.api.get("/v1/users/" + user.credentials[0]).json["grants"]
    equal(got, [grant("produce", "a")], "grants")


@case("no_escalation_http/admin-by-admin", SEC)
def an_admin_makes_no_admin(c):
    admin, user = c.user(("admin",)), c.user()
    text = "cannot grant permissions you do not hold"
    for grants in ([grant("admin")], [grant("produce", "*"), grant("admin")]):
        admin.post("/v1/users", {"username": c.fresh("u")[-50:], "password": "x", "grants": grants}).expect(403, error=text)
        admin.put(f"/v1/users/{user.credentials[0]}/grants", {"grants": grants}).expect(403, error=text)
    check("grants" not in c.api.get("/v1/users/" + user.credentials[0]).json, "nothing was given")


@case("no_escalation_http/root", SEC)
def root_stays_root(c):
    admin = c.user(("admin",))
    for who in (admin, c.api):
        who.delete("/v1/users/admin").expect(403)
        who.put("/v1/users/admin/grants", {"grants": []}).expect(403)
        who.post("/v1/users", {"username": "admin", "password": "mine"}).expect(409)
    admin.put("/v1/users/admin/password", {"new_password": "mine"}).expect(403)
    admin.put("/v1/users/admin/password", {"new_password": "mine", "current_password": c.api.credentials[1]}).expect(403)
    root = c.api.get("/v1/users/admin").expect(200).json
    check(root["root"] is True, "root")


@case("no_escalation_http/users", SEC)
def who_is_no_admin_reaches_no_account(c):
    user, other = c.user(("create", "*"), ("produce", "*"), ("consume", "*")), c.user()
    name = other.credentials[0]
    user.put(f"/v1/users/{name}/password", {"new_password": "x"}).expect(403, error="admin required")
    user.put(f"/v1/users/{name}/grants", {"grants": [grant("admin")]}).expect(403)
    user.delete("/v1/users/" + name).expect(403)
    user.get("/v1/users/" + name).expect(403)
    user.get("/v1/users/" + user.credentials[0]).expect(403)
    user.post("/v1/users", {"username": c.fresh("u")[-50:], "password": "x", "root": True}).expect(400, 403)
    other.get("/v1/topics").expect(200)


@case("no_escalation_http/members", SEC)
def root_is_no_member_that_is_sent(c):
    body = {"username": c.fresh("u")[-50:], "password": "x"}
    for more in ({"root": True}, {"created_at_ms": 1}, {"admin": True}, {"password_hash": "$2b$10$x"}):
        c.api.post("/v1/users", {**body, **more}).expect(400, has="unknown field")


@case("no_escalation_http/taken-grants", SEC)
def what_was_taken_is_gone_at_once(c):  # I-103, I-108
    topic = c.topic()
    user = c.user(("produce", topic.name), ("consume", topic.name))
    mine, path = topic.by(user), f"/v1/users/{user.credentials[0]}"
    mine.produce().expect(202)
    c.api.put(path + "/grants", {"grants": [grant("consume", topic.name)]}).expect(200)
    mine.produce().expect(403)
    user.put(path + "/password", {"current_password": user.credentials[1], "new_password": "next"}).expect(204)
    again = topic.by(c.api.by(user.credentials[0], "next"))
    again.produce().expect(403)
    again.consume().expect(200)
    c.api.put(path + "/grants", {"grants": []}).expect(200)
    again.consume().expect(403)
    equal("grants" in c.api.get(path).json, False, "grants")


@case("password_change_cuts_access", SEC)
def a_changed_password_ends_the_old_one(c):  # I-103
    user = c.user(("produce", "*"))
    old = user.credentials
    for round_of in range(3):
        user.get("/v1/topics").expect(200)
        c.api.put(f"/v1/users/{old[0]}/password", {"new_password": f"next-{round_of}"}).expect(204)
        user.get("/v1/topics").expect(401)
        user = c.api.by(old[0], f"next-{round_of}")
    c.api.by(*old).get("/v1/topics").expect(401)


@case("authz_matrix/polls", SEC)
def a_poll_that_waits_ends_with_its_right(c):
    topic = c.topic()
    user = c.user(("consume", topic.name))
    topic.by(user).consume("?wait=1ms").expect(204)
    c.api.put(f"/v1/users/{user.credentials[0]}/grants", {"grants": []}).expect(200)
    topic.put()
    topic.by(user).consume("?wait=1ms").expect(403)
    topic.consume().expect(200)
