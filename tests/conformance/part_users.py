"""Users, grants, passwords, credentials: sections 1.7, 1.8 and 8, U01 to U20."""

import base64
import json
import time

from cases import SEC, case, check, equal, grant, in_parallel, table, wait_until

ADMINS_ONLY = "admin privileges required"


@case("U01", SEC)
def nobody_gets_nothing(c):
    answer = c.api.anonymous().get("/v1/topics").expect(401, error="authentication required")
    equal(answer.header("WWW-Authenticate"), 'Basic realm="narad"', "WWW-Authenticate")


@case("U02", SEC)
def health_and_metrics_are_open(c):
    for path in ("/healthz", "/readyz", "/metrics"):
        c.api.anonymous().get(path).expect(200)


@case("U04", SEC)
def a_user_is_made(c):
    name = c.fresh("u")[-50:]
    body = {"username": name, "password": "prodpw", "grants": [grant("produce", "orders-*")]}
    answer = c.api.post("/v1/users", body).expect(201)
    got = answer.json
    equal((got["username"], got["grants"]), (name, body["grants"]), "user")
    check(all(len(str(got[m])) == 13 for m in ("created_at_ms", "updated_at_ms")), "milliseconds")
    check(b"password" not in answer.body and "root" not in got, "members")


@case("U05", SEC)
def a_name_is_taken_once(c):
    body = {"username": c.fresh("u")[-50:], "password": "x"}
    c.api.post("/v1/users", body).expect(201)
    c.api.post("/v1/users", body).expect(409, has="already exists")


@case("U06", SEC)
def a_producer_produces_and_no_more(c):
    topic = c.topic(name=c.fresh("orders-"))
    producer = c.user(("produce", "orders-*"))
    mine = topic.by(producer)
    mine.produce().expect(202)
    mine.consume().expect(403, error="consume not allowed on this topic")
    producer.delete(topic.path).expect(403, error="only the topic owner or an admin may modify this topic")
    producer.get("/v1/users").expect(403, error=ADMINS_ONLY)


@case("U08", SEC)
def a_wrong_password(c):
    c.api.by("admin", "wrong-" + c.fresh()).get("/v1/topics").expect(401, error="authentication required")


@case("U10", SEC)
def the_list_is_an_array(c):
    got = c.api.get("/v1/users").expect(200).json
    names = [u["username"] for u in got]
    equal(names, sorted(names), "order")
    root = next(u for u in got if u["username"] == "admin")
    check(root["root"] is True and "grants" not in root, f"{root}")


@case("U11", SEC)
def a_user_that_is_missing(c):
    c.api.get("/v1/users/ghost-" + c.fresh()).expect(404, error="not found")


NAME = "username must match ^[A-Za-z0-9._-]{1,64}$"

USERS_400 = [
    ("no-name", {"password": "x"}, NAME), ("empty-name", {"username": "", "password": "x"}, NAME),
    ("blank", {"username": "a b", "password": "x"}, NAME), ("65", {"username": "a" * 65, "password": "x"}, NAME),
    ("colon", {"username": "a:b", "password": "x"}, NAME), ("slash", {"username": "a/b", "password": "x"}, NAME),
    ("umlaut", {"username": "\u00fc", "password": "x"}, NAME), ("star", {"username": "*", "password": "x"}, NAME),
    ("no-password", {"username": "u-none"}, "password required"),
    ("empty-password", {"username": "u-none", "password": ""}, "password required"),
    ("name-before-password", {"username": ""}, NAME),
    ("password-before-grants", {"username": "u-none", "grants": [{"action": "fly"}]}, "password required"),
]
GRANTS_400 = [
    ("fly", [grant("fly", "a")], 'unknown grant action "fly"'), ("no-action", [{"patterns": ["a"]}], 'unknown grant action ""'),
    ("upper-case", [grant("Produce", "a")], 'unknown grant action "Produce"'),
    ("no-patterns", [grant("produce")], 'grant "produce" requires at least one topic pattern'),
    ("no-patterns-consume", [{"action": "consume", "patterns": []}], 'grant "consume" requires at least one topic pattern'),
    ("no-patterns-create", [{"action": "create", "patterns": None}], 'grant "create" requires at least one topic pattern'),
    ("empty-pattern", [grant("produce", "a", "")], 'grant "produce" has an empty pattern'),
    ("star-inside", [grant("produce", "a*b")],
     "grant \"produce\" pattern \"a*b\" must be a topic name with an optional trailing '*'"),
    ("two-stars", [grant("consume", "**")],
     "grant \"consume\" pattern \"**\" must be a topic name with an optional trailing '*'"),
    ("blank", [grant("create", "a b")], "grant \"create\" pattern \"a b\" must be a topic name with an optional trailing '*'"),
    ("admin-with-patterns", [grant("admin", "*")], "admin grants are global and must not carry patterns"),
    ("second-is-bad", [grant("produce", "a"), grant("fly", "a")], 'unknown grant action "fly"'),
]


@table("U1/400", USERS_400, SEC)
def users_that_are_refused(c, body, text):
    c.api.post("/v1/users", body).expect(400, error=text)


@table("U1/400/grants", GRANTS_400, SEC)
def grants_of_a_new_user_that_are_refused(c, grants, text):
    name = c.fresh("u")[-50:]
    c.api.post("/v1/users", {"username": name, "password": "x", "grants": grants}).expect(400, error=text)
    c.api.get("/v1/users/" + name).expect(404)


@table("U5/400", GRANTS_400, SEC)
def grants_that_are_refused(c, grants, text):
    c.api.put("/v1/users/nobody-at-all/grants", {"grants": grants}).expect(400, error=text)


@case("U12", SEC)
def what_is_no_user(c):
    for name in ("", "a b", "a" * 65):
        c.api.post("/v1/users", {"username": name, "password": "x"}).expect(400)
    c.api.post("/v1/users", {"username": c.fresh("u")[-50:]}).expect(400)
    for bad in (grant("fly"), grant("produce"), grant("admin", "x"), grant("produce", "a*b")):
        c.api.post("/v1/users", {"username": c.fresh("u")[-50:], "password": "x", "grants": [bad]}).expect(400)


@case("U13", SEC)
def only_root_confers_admin(c):
    admin = c.user(("admin",))
    body = {"username": c.fresh("u")[-50:], "password": "x", "grants": [grant("admin")]}
    admin.post("/v1/users", body).expect(403, has="do not hold")
    c.api.post("/v1/users", body).expect(201)


@case("U14", SEC)
def who_may_not_be_deleted(c):
    admin, producer = c.user(("admin",)), c.user(("produce", "a"))
    for who in (admin, c.api):
        who.delete("/v1/users/admin").expect(403, error="the root admin cannot be deleted")
    admin.delete("/v1/users/" + admin.credentials[0]).expect(403, error="cannot delete your own account")
    producer.get("/v1/topics").expect(200)
    admin.delete("/v1/users/" + producer.credentials[0]).expect(204)
    producer.get("/v1/topics").expect(401)
    admin.delete("/v1/users/" + producer.credentials[0]).expect(404, error="not found")


@case("U15", SEC)
def whose_grants_may_be_changed(c):
    topic = c.topic()
    admin, producer = c.user(("admin",)), c.user(("produce", topic.name))
    admin.put("/v1/users/admin/grants", {"grants": []}).expect(403, error="the root admin's grants are immutable")
    admin.put(f"/v1/users/{admin.credentials[0]}/grants", {"grants": []}).expect(403, error="cannot modify your own grants")
    mine = topic.by(producer)
    mine.produce().expect(202)
    body = {"grants": [grant("consume", topic.name)]}
    got = admin.put(f"/v1/users/{producer.credentials[0]}/grants", body).expect(200).json
    equal(got["grants"], body["grants"], "grants")
    mine.produce().expect(403, error="produce not allowed on this topic")
    mine.consume().expect(200)


@case("U17", SEC)
def a_user_changes_its_password(c):  # I-103
    topic = c.topic()
    erin = c.user(("produce", topic.name), password="old-pw-" + c.fresh())
    name, path = erin.credentials[0], f"/v1/users/{erin.credentials[0]}/password"
    before = c.api.get(f"/v1/users/{name}").expect(200).json["grants"]
    for body in ({"current_password": "wrong", "new_password": "x"}, {"new_password": "x"}):
        erin.put(path, body).expect(403, error="current password is incorrect")
    topic.by(erin).produce().expect(202)
    erin.put(path, {"current_password": erin.credentials[1], "new_password": "new-pw"}).expect(204)
    erin.get("/v1/topics").expect(401)
    topic.by(c.api.by(name, "new-pw")).produce().expect(202)
    equal(c.api.get(f"/v1/users/{name}").expect(200).json["grants"], before, "grants")


@case("U18", SEC, first=True)  # alone: what others of root's have under way ends with its old password
def the_password_of_root(c):
    admin = c.user(("admin",))
    admin.put("/v1/users/admin/password", {"new_password": "taken"}).expect(
        403, error="only the root admin may change the root password")
    # Its own, without the present one; the same again, for the other cases.
    c.api.put("/v1/users/admin/password", {"new_password": c.api.credentials[1]}).expect(204)
    wait_until(lambda: c.api.get("/v1/users").status == 200, "root goes on")


@case("U20", SEC)
def a_creator_owns_its_topic(c):
    name = c.fresh("sec-")
    alice = c.user(("create", "sec-*"), ("produce", "sec-*"), ("consume", "sec-*"))
    bob = c.user(("create", "sec-*"), ("produce", "sec-*"), ("consume", "sec-*"))
    got = alice.post("/v1/topics", {"name": name, "owner": bob.credentials[0]}).expect(201).json
    equal(got["owner"], alice.credentials[0], "owner")
    path, text = "/v1/topics/" + name, "only the topic owner or an admin may modify this topic"
    bob.patch(path, {"partitions": 9}).expect(403, error=text)
    bob.delete(path).expect(403, error=text)
    alice.patch(path, {"partitions": 9}).expect(200)
    alice.delete(path).expect(204)


# --- every row of section 8 ---

@table("U1/201", [("no-grants", {}), ("null-grants", {"grants": None}), ("empty-grants", {"grants": []}),
                  ("all-actions", {"grants": [grant("produce", "a"), grant("consume", "b*"), grant("create", "*")]}),
                  ("admin", {"grants": [grant("admin")]}), ("admin-empty-patterns", {"grants": [{"action": "admin", "patterns": []}]}),
                  ("64-bytes", {"username": 64}), ("72-bytes", {"password": "\u00fc" * 36})], SEC)
def users_that_are_made(c, members):
    name = c.fresh("u")[-50:]
    if members.get("username") == 64:
        name, members = (name + "-" + "n" * 64)[:64], {}
    got = c.api.post("/v1/users", {"username": name, "password": "p", **members}).expect(201).json
    want = [{k: v for k, v in g.items() if v} for g in members.get("grants") or []]
    equal(got.get("grants", []), want, "grants")
    equal(c.api.get("/v1/users/" + name).expect(200).json, got, "the user as it is read")
    c.api.by(name, members.get("password", "p")).get("/v1/topics").expect(200)


@table("D13", [("create", "POST"), ("change", "PUT")], SEC)
def a_password_above_72_bytes(c, method):
    long = "p" * 73
    if method == "POST":
        c.api.post("/v1/users", {"username": c.fresh("u")[-50:], "password": long}).expect(400, has="72")
    else:
        user = c.user()
        c.api.put(f"/v1/users/{user.credentials[0]}/password", {"new_password": long}).expect(400, has="72")
        user.get("/v1/topics").expect(200)


@case("U3/200", SEC)
def a_user_as_it_is_read(c):
    got = c.api.get("/v1/users/admin").expect(200).json
    check(got["root"] is True and set(got) <= {"username", "root", "created_at_ms", "updated_at_ms"}, f"{got}")


@case("U4/order", SEC)
def a_missing_user_before_all_rules(c):
    c.api.delete("/v1/users/ghost-" + c.fresh()).expect(404, error="not found")


@case("U4/owner-stays", SEC)
def topics_of_a_deleted_user_keep_its_name(c):
    alice = c.user(("create", "*"))
    name = c.fresh()
    alice.post("/v1/topics", {"name": name}).expect(201)
    c.api.delete("/v1/users/" + alice.credentials[0]).expect(204)
    equal(c.api.get("/v1/topics/" + name).expect(200).json["owner"], alice.credentials[0], "owner")


@table("U5/200", [("none", {}), ("null", {"grants": None}), ("empty", {"grants": []})], SEC)
def grants_that_are_removed(c, body):
    user = c.user(("produce", "a"))
    got = c.api.put(f"/v1/users/{user.credentials[0]}/grants", body).expect(200).json
    check("grants" not in got, f"{got}")
    equal(c.api.get("/v1/users/" + user.credentials[0]).json, got, "the user as it is read")


@case("U5/order", SEC)
def in_which_order_a_change_of_grants_is_judged(c):
    admin = c.user(("admin",))
    mine = f"/v1/users/{admin.credentials[0]}/grants"
    ghost = "/v1/users/ghost-x/grants"
    admin.put(mine, {"grants": [grant("fly")]}).expect(400)
    admin.put(mine, {"grants": [grant("admin")]}).expect(403, error="cannot modify your own grants")
    c.api.put("/v1/users/admin/grants", {"grants": []}).expect(403, error="cannot modify your own grants")
    admin.put(ghost, {"grants": [grant("admin")]}).expect(403, error="cannot grant permissions you do not hold")
    admin.put(ghost, {"grants": [grant("produce", "a")]}).expect(404, error="not found")
    admin.put(ghost, b"{").expect(400)
    c.user().put(ghost, b"{").expect(403, error=ADMINS_ONLY)


@case("U6/order", SEC)
def in_which_order_a_change_of_a_password_is_judged(c):
    admin, user, ghost = c.user(("admin",)), c.user(), "/v1/users/ghost-x/password"
    user.put(ghost, b"{").expect(403, error="admin required")
    user.put("/v1/users/admin/password", {"new_password": "x"}).expect(403, error="admin required")
    admin.put(ghost, b"{").expect(400, has="invalid json")
    admin.put(ghost, {}).expect(400, error="new_password required")
    admin.put("/v1/users/admin/password", {"new_password": ""}).expect(400, error="new_password required")
    admin.put(ghost, {"new_password": "x"}).expect(404, error="not found")
    user.put(f"/v1/users/{user.credentials[0]}/password", {}).expect(400, error="new_password required")


@case("U6/admin", SEC)
def an_admin_sets_passwords_of_others_and_its_own(c):
    admin, user = c.user(("admin",)), c.user()
    admin.put(f"/v1/users/{user.credentials[0]}/password", {"new_password": "set"}).expect(204)
    c.api.by(user.credentials[0], "set").get("/v1/topics").expect(200)
    admin.put(f"/v1/users/{admin.credentials[0]}/password", {"new_password": "own"}).expect(204)
    c.api.by(admin.credentials[0], "own").get("/v1/users").expect(200)
    admin.get("/v1/users").expect(401)


@case("U1/delegation", SEC)
def an_admin_confers_what_is_scoped(c):
    admin = c.user(("admin",))
    admin.post("/v1/users", {"username": c.fresh("u")[-50:], "password": "x",
                             "grants": [grant("produce", "*"), grant("create", "x-*")]}).expect(201)


# --- credentials ---

def basic(text):
    return "Basic " + base64.b64encode(text).decode()


@table("1.7/header", [
    ("none", None, 401), ("empty", "", 401), ("scheme-alone", "Basic", 401), ("other-scheme", "Bearer abc", 401),
    ("no-base64", "Basic ***", 401), ("no-colon", basic(b"admin"), 401), ("half-base64", "Basic YWRtaW4", 401),
    ("empty-password", basic(b"admin:"), 401), ("empty-name", basic(b":admin-secret"), 401),
    ("right", basic(b"admin:admin-secret"), 200), ("lower-case", basic(b"admin:admin-secret").replace("Basic", "basic"), 200),
    ("upper-case", basic(b"admin:admin-secret").replace("Basic", "BASIC"), 200),
    ("other-case-name", basic(b"Admin:admin-secret"), 401), ("nul-behind", basic(b"admin:admin-secret\x00"), 401),
    ("longer", basic(b"admin:admin-secret "), 401), ("unknown", basic(b"nobody-here:admin-secret"), 401),
    ("long-name", basic(b"n" * 5000 + b":x"), 401), ("long-password", basic(b"admin:" + b"x" * 5000), 401),
    ("not-utf8", basic(b"\xff\xfe:\xff"), 401), ("name-with-a-slash", basic(b"../admin:admin-secret"), 401),
], SEC)
def what_counts_as_credentials(c, header, status):
    headers = {} if header is None else {"Authorization": header}
    answer = c.api.anonymous().get("/v1/topics", headers=headers).expect(status)
    if status == 401:
        answer.expect(401, error="authentication required")
        equal(answer.header("WWW-Authenticate"), 'Basic realm="narad"', "WWW-Authenticate")


@case("1.7/colon", SEC)
def a_password_may_hold_a_colon(c):
    user = c.user(password="a:b:c \u00fc")
    user.get("/v1/topics").expect(200)
    c.api.by(user.credentials[0], "a").get("/v1/topics").expect(401)


@table("1.7/before-routing", [("unknown-path", "GET", "/v1/nope"), ("root", "GET", "/"), ("wrong-method", "PUT", "/v1/topics"),
                              ("bad-body", "POST", "/v1/topics"), ("health-below", "GET", "/healthz/x"),
                              ("metrics-below", "GET", "/metrics/x"), ("other-case", "GET", "/HEALTHZ"),
                              ("encoded", "GET", "/%68ealthz")], SEC)
def credentials_come_first(c, method, path):
    nobody, wrong = c.api.anonymous(), c.api.by("nobody-here", "x")
    for who in (nobody, wrong):
        who.send(method, path, b"{" if method == "POST" else None).expect(401, error="authentication required")
    check(c.api.send(method, path, b"{" if method == "POST" else None).status in (404, 405, 400), "with them it is told")


@table("1.7/exempt", [("POST", "POST", "/healthz"), ("DELETE", "DELETE", "/readyz"), ("PUT", "PUT", "/metrics")], SEC)
def exempt_paths_are_so_whatever_the_method(c, method, path):
    c.api.anonymous().send(method, path).router(405)


@case("1.7/large-body", SEC)
def a_stranger_is_told_so_whatever_the_body(c):
    for body in (b"", b"x" * (1 << 20), b"x" * ((1 << 20) + 1)):
        c.api.anonymous().post("/v1/topics/t/produce", body).expect(401, error="authentication required")


@case("1.7/throttle", SEC)
def too_many_wrong_passwords(c):  # I-105
    user = c.user(password="the right one")
    name = user.credentials[0]
    user.get("/v1/topics").expect(200)  # verified here
    later = c.user(password="never used before")
    guesses = iter(range(1000))

    def guess(who):
        return c.api.by(who, f"guess-{next(guesses)}").get("/v1/topics")

    answer = wait_until(lambda: next((a for a in [guess(name)] if a.status == 429), None), "the guesser is throttled")
    answer.expect(429, error="too many failed authentication attempts")
    equal(answer.header("WWW-Authenticate"), None, "WWW-Authenticate")
    user.get("/v1/topics").expect(200)  # a verified password goes on
    # A right one that was never verified waits for a token, and then works.
    wait_until(lambda: guess(later.credentials[0]).status == 429, "the other user is throttled, too")
    answer = later.get("/v1/topics").expect(200, 429)
    started = time.monotonic()
    wait_until(lambda: later.get("/v1/topics").status == 200, "the right password works again")
    check(time.monotonic() - started < 100, "within seconds")


@case("1.7/throttle-same", SEC)
def the_same_wrong_password_costs_nothing(c):
    user = c.user()
    for _ in range(20):
        c.api.by(user.credentials[0], "always the same").get("/v1/topics").expect(401)
    user.get("/v1/topics").expect(200)


@case("1.7/throttle-unknown", SEC)
def unknown_users_are_never_throttled(c):
    for guess in range(20):
        c.api.by("ghost-" + c.fresh(), f"g{guess}").get("/v1/topics").expect(401, error="authentication required")


@case("1.7/no-difference", SEC)
def known_and_unknown_users_look_alike(c):
    user = c.user()
    known = c.api.by(user.credentials[0], "wrong").get("/v1/topics").expect(401)
    unknown = c.api.by("ghost-" + c.fresh(), "wrong").get("/v1/topics").expect(401)
    equal(known.body, unknown.body, "body")
    # The date may differ, and nothing else.
    def heads(answer):
        return sorted((n.lower(), v) for n, v in answer.headers.items() if n.lower() != "date")
    equal(heads(known), heads(unknown), "headers")


@case("U4/twice-at-once", SEC)
def one_of_two_deletes_finds_the_user(c):
    for _ in range(10):
        path = "/v1/users/" + c.user().credentials[0]
        answers = in_parallel(*[lambda: c.api.delete(path)] * 4)
        equal(sorted(a.status for a in answers), [204, 404, 404, 404], "statuses")
        [a.expect(404, error="not found") for a in answers if a.status == 404]
        c.api.get(path).expect(404, error="not found")


@case("1.7/deleted", SEC)
def a_user_made_anew_has_no_old_password(c):
    user = c.user(password="first")
    user.get("/v1/topics").expect(200)
    c.api.delete("/v1/users/" + user.credentials[0]).expect(204)
    user.get("/v1/topics").expect(401)
    c.api.post("/v1/users", {"username": user.credentials[0], "password": "second"}).expect(201)
    user.get("/v1/topics").expect(401)
    c.api.by(user.credentials[0], "second").get("/v1/topics").expect(200)


@case("1.7/many-at-once", SEC)
def one_password_checked_by_many(c):
    user = c.user()
    in_parallel(*[lambda: user.get("/v1/topics").expect(200)] * 16)


# --- order of checks on topic routes ---

@case("1.8/order", SEC)
def rights_before_existence_and_syntax(c):
    nobody, missing = c.user(), c.missing()
    mine = missing.by(nobody)
    mine.produce(b"", "?partition=x").expect(403, error="produce not allowed on this topic")
    mine.produce(b"x" * ((1 << 20) + 1)).expect(403, 413)
    mine.consume("?partition=x").expect(403, error="consume not allowed on this topic")
    nobody.post(f"{missing.path}/ack?receipt_handle=bad").expect(403, error="consume not allowed on this topic")
    nobody.post(f"{missing.path}/produce/batch", b"{").expect(403, error="produce not allowed on this topic")
    nobody.patch(missing.path, {"partitions": 5}).expect(404)
    nobody.delete(missing.path).expect(404)
    nobody.post("/v1/topics", {"name": "a b"}).expect(403, error="create not allowed on this topic")
    nobody.post("/v1/topics", {"x": 1}).expect(400, has="invalid json")
    nobody.post("/v1/topics", json.dumps({"name": "x" * (1 << 20)}).encode()).expect(413)


@table("1.8/pattern", [
    ("literal", "lit", "lit", True), ("literal-longer", "lit", "lit-x", False), ("literal-shorter", "lit-x", "lit", False),
    ("star", "*", "anything", True), ("prefix", "orders-*", "orders-eu", True), ("prefix-itself", "orders-*", "orders-", True),
    ("prefix-shorter", "orders-*", "orders", False), ("other-case", "Orders", "orders", False),
    ("dot-is-a-dot", "a.c", "abc", False),
], SEC)
def patterns(c, pattern, name, allowed):
    base = c.fresh()
    pattern = pattern if pattern == "*" else base + pattern
    user = c.user(("produce", pattern))
    topic = c.topic(name=base + name)
    topic.by(user).produce().expect(202 if allowed else 403)
