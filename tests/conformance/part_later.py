"""What later releases add: what this one says of it, and profile 3. Z01, F, S, X."""

from cases import V3, Topic, case, check, equal, in_parallel, table, wait_until


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


@case("D23", V3)
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

    in_parallel(*[lambda: poll("?wait=5s")] * 40)
    check(refused, "none of 40 polls was refused at a limit of 8")
    wait_until(lambda: topic.consume().status == 204, "polls that ended make room")
