"""What later releases add: what this one says of it, and profile 3. Z01, F, S, X."""

from cases import SEC3, V3, Topic, case, check, equal, in_parallel, table, wait_until


@case("F")
def children_are_not_there_yet(c):
    topic = c.topic()
    for method, path in (("POST", f"{topic.path}/children"), ("GET", f"{topic.path}/children"),
                         ("DELETE", f"{topic.path}/children/c")):
        c.api.send(method, path, {"child": "c"} if method == "POST" else None).router(404)
    child = c.missing()
    c.api.post("/v1/topics", {"name": child.name, "parent": topic.name}).expect(501, has="")
    c.api.post("/v1/topics", {"name": child.name, "parent": topic.name, "fanout_delay_ms": 5}).expect(501, has="")
    c.api.get(child.path).expect(404)


@case("S")
def schemas_are_not_there_yet(c):
    topic, other = c.topic(), c.missing()
    c.api.get(f"{topic.path}/schema").router(404)
    c.api.post("/v1/topics", {"name": other.name, "schema": {"type": "object"}}).expect(501, has="")
    c.api.get(other.path).expect(404)
    c.api.patch(topic.path, {"schema": {"type": "object"}}).expect(501, has="")


@case("X")
def the_cluster_is_not_there_yet(c):
    for method, path in (("GET", "/v1/cluster/members"), ("GET", "/v1/cluster/moves"),
                         ("POST", "/v1/cluster/members/a/decommission"), ("DELETE", "/v1/cluster/members/a/decommission"),
                         ("POST", "/v1/cluster/moves/t/0/abort"), ("POST", "/v1/cluster/members/a/forget"),
                         ("GET", "/v1/remotes")):
        c.api.send(method, path).router(404)


# --- profile 3 ---

JSON = {"Content-Type": "application/json"}
GUARD = ("state-changing requests must send Content-Type: application/json or application/octet-stream, "
         "or an X-Narad-Client header")


def create(c, name=None, headers=None, **members):
    body = {"name": name or c.fresh(), **members}
    return c.api.post("/v1/topics", body, headers=JSON if headers is None else headers)


def topic_of_3(c, **members):
    topic = Topic(c.api, c.fresh())
    create(c, topic.name, **members).expect(201)
    return topic


@case("Z01", V3)
def a_header_is_required(c):
    for headers in ({"Content-Type": "text/plain"}, {"Content-Type": "application/x-www-form-urlencoded"}, {}):
        create(c, headers=headers).expect(415, error=GUARD)
    create(c).expect(201)
    check(create(c, headers={"Content-Type": "text/plain", "X-Narad-Client": "t"}).status != 415, "with the header")


@table("1.9", [
    ("json", {"Content-Type": "application/json"}, 201), ("octets", {"Content-Type": "application/octet-stream"}, 201),
    ("parameters", {"Content-Type": "application/json; charset=utf-8"}, 201), ("client", {"X-Narad-Client": "curl"}, 201),
    ("upper-case", {"Content-Type": "Application/JSON"}, 201), ("other", {"Content-Type": "application/jsonx"}, 415),
    ("empty-client", {"X-Narad-Client": ""}, 415), ("multipart", {"Content-Type": "multipart/form-data; boundary=x"}, 415),
], V3)
def which_headers_pass(c, headers, status):
    create(c, headers=headers).expect(status)


@case("1.9/methods", V3)
def which_methods_are_guarded(c):
    topic = topic_of_3(c)
    for method, path in (("POST", f"{topic.path}/produce"), ("POST", f"{topic.path}/ack"), ("PATCH", topic.path),
                         ("PUT", "/v1/users/a/grants"), ("PUT", "/v1/topics"), ("POST", "/v1/nope")):
        c.api.send(method, path, b"{}").expect(415, error=GUARD)
    c.api.get(topic.path).expect(200)
    topic.consume().expect(204)
    c.api.delete(topic.path).expect(204)


@table("D1", [("zero", {"retention_ms": 0}, 0), ("absent", {}, 604800000), ("null", {"retention_ms": None}, 604800000)], V3)
def retention_0_keeps_forever(c, members, want):
    equal(create(c, **members).expect(201).json["retention_ms"], want, "retention")


@case("D1/alter", V3)
def retention_0_keeps_forever_from_now_on(c):
    topic = topic_of_3(c)
    equal(c.api.patch(topic.path, {"retention_ms": 0}, headers=JSON).expect(200).json["retention_ms"], 0, "retention")


@table("D18/length", [("200", 200, 201), ("201", 201, 400)], V3)
def names_have_200_characters(c, size, status):
    create(c, (c.fresh() + "-" + "n" * 300)[:size]).expect(status)


@case("D18/letter-case", V3)
def names_differ_in_more_than_letter_case(c):
    topic = topic_of_3(c)
    create(c, topic.name.swapcase()).expect(409, has="differs only in letter case")
    create(c, topic.name).expect(409)


@case("D3", SEC3)
def metrics_want_a_user(c):
    c.api.anonymous().get("/metrics").expect(401)
    c.user().get("/metrics").expect(200)
    for path in ("/healthz", "/readyz"):
        c.api.anonymous().get(path).expect(200)


@table("D4", [("nobody", (), 403, False), ("produce", (("produce", "{}"),), 200, True), ("consume", (("consume", "{}"),), 200, True),
              ("create", (("create", "{}"),), 200, True), ("other", (("produce", "other"),), 403, False),
              ("admin", (("admin",),), 200, True)], SEC3)
def a_topic_is_seen_by_who_has_to_do_with_it(c, grants, status, seen):
    topic = c.topic()
    user = c.user(*[(g[0], *[p.format(topic.name) for p in g[1:]]) for g in grants])
    answer = user.get(topic.path).expect(status)
    if status == 403:
        answer.expect(403, error="no grant on this topic")
    names, token = [], ""
    while True:
        page = user.get(f"/v1/topics?limit=1000&page_token={token}").expect(200).json
        names += [t["name"] for t in page["topics"]]
        token = page["next_page_token"]
        if not token:
            break
    equal(topic.name in names, seen, "in the list")


@case("D4/owner", SEC3)
def an_owner_sees_its_topic(c):
    owner = c.user(("create", "*"))
    topic = c.topic(api=owner)
    c.api.put(f"/v1/users/{owner.credentials[0]}/grants", {"grants": []}).expect(200)
    owner.get(topic.path).expect(200)
    other = c.topic()
    owner.get(other.path).expect(403, error="no grant on this topic")


@case("1.9/after-credentials", SEC3)
def credentials_come_before_the_header(c):
    c.api.anonymous().post("/v1/topics", {"name": "x"}, headers={"X-Narad-Client": ""}).expect(401)
    c.api.post("/v1/topics", {"name": "x"}, headers={"X-Narad-Client": ""}).expect(415, error=GUARD)


@case("D23/user", SEC3)
def polls_are_counted_by_user(c):
    topic = c.topic()
    user, other = c.user(("consume", "*")), c.user(("consume", "*"))
    refused = []
    for _ in range(5):  # on a slow machine they may not meet
        if not refused:
            answers = in_parallel(*[lambda: topic.by(user).consume("?wait=5s")] * 24)
            refused = [a for a in answers if a.status == 429]
    check(refused, "none of 24 polls was refused at a limit of 8")
    refused[0].expect(429, error="too many in-flight consume requests for this identity (limit 8 per node)")
    check(int(refused[0].header("Retry-After")) >= 1, "Retry-After")
    topic.by(other).consume().expect(204)
    topic.by(user).consume("?max=9").expect(204, 429)
    wait_until(lambda: topic.by(user).consume().status == 204, "polls that ended make room")


@case("D23", V3, first=True)
def too_many_polls_at_a_time(c):
    topic = topic_of_3(c)
    refused = []

    def poll(query):
        answer = topic.consume(query)
        if answer.status == 429:
            answer.expect(429, error="too many in-flight consume requests for this identity (limit 8 per node)")
            check(int(answer.header("Retry-After")) >= 1, "Retry-After")
            refused.append(answer)
        else:
            answer.expect(204)

    for _ in range(5):  # on a slow machine they may not meet
        if not refused:
            in_parallel(*[lambda: poll("?wait=5s")] * 24)
    check(refused, "none of 24 polls was refused at a limit of 8")
    wait_until(lambda: topic.consume().status == 204, "polls that ended make room")
