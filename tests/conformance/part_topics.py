"""Topics: section 4, T01 to T46."""

import json
import time

from cases import Skipped, Topic, case, check, equal, in_parallel, table, wait_until

HOUR = 3600000


# --- create ---

@case("T01")
def defaults(c):
    got = c.api.post("/v1/topics", {"name": c.fresh()}).expect(201).json
    equal({k: got[k] for k in got if k not in ("name", "created_at", "id")},
          {"partitions": 4, "retention_ms": 604800000, "visibility_timeout_ms": 30000,
           "max_in_flight_per_partition": 1024, "max_acked_ahead_per_partition": 1024}, "the topic")


@case("T02")
def explicit_values(c):
    body = {"name": c.fresh(), "partitions": 8, "retention_ms": HOUR}
    asked = time.time()
    got = c.api.post("/v1/topics", body).expect(201).json
    equal({k: got[k] for k in body}, body, "what was asked for")
    check(asked - 5 <= got["created_at"] <= time.time() + 5, f"created_at is {got['created_at']}")


@case("T03")
def a_name_is_taken_once(c):
    body = {"name": c.fresh()}
    c.api.post("/v1/topics", body).expect(201)
    c.api.post("/v1/topics", body).expect(409, error="topic already exists")


@case("T04")
def an_empty_name(c):
    c.api.post("/v1/topics", {"name": ""}).expect(400, has="name required")


@case("T05")
def too_few_partitions(c):
    for partitions in (-1, 1, 2):
        c.api.post("/v1/topics", {"name": c.fresh(), "partitions": partitions}).expect(400, has="partitions must be >= 3")


@case("T06")
def too_many_partitions(c):
    c.api.post("/v1/topics", {"name": c.fresh(), "partitions": 129}).expect(400, has="exceeds topic.max_partitions (128)")
    c.topic(128)


@case("T07")
def a_negative_retention(c):
    c.api.post("/v1/topics", {"name": c.fresh(), "retention_ms": -1}).expect(400)


@case("T08")
def a_retention_below_the_floor(c):
    c.api.post("/v1/topics", {"name": c.fresh(), "retention_ms": 1800000}).expect(400, has="below the minimum of 3600000")


NAME = "invalid argument: topic name must match ^[A-Za-z0-9._-]{1,255}$"
ZERO = "invalid argument: {} must be >= 0 (0 = use default)"


@table("T1/400", [
    ("no-name", {}, "invalid argument: name required"),
    ("dot", {"name": "."}, 'invalid argument: topic name must not be "."'),
    ("dots", {"name": ".."}, 'invalid argument: topic name must not be ".."'),
    ("blank", {"name": "a b"}, NAME), ("slash", {"name": "a/b"}, NAME), ("up", {"name": "../x"}, NAME),
    ("umlaut", {"name": "\u00fc"}, NAME), ("nul", {"name": "a\0b"}, NAME), ("line-end", {"name": "a\n"}, NAME),
    ("256", {"name": "n" * 256}, NAME), ("star", {"name": "a*"}, NAME), ("percent", {"name": "a%20"}, NAME),
    ("backslash", {"name": "a\\b"}, NAME), ("colon", {"name": "a:b"}, NAME),
    ("partitions-2", {"partitions": 2}, "invalid argument: partitions must be >= 3 (0 = use default)"),
    ("partitions-negative", {"partitions": -1}, "invalid argument: partitions must be >= 3 (0 = use default)"),
    ("partitions-129", {"partitions": 129}, "invalid argument: partitions (129) exceeds topic.max_partitions (128)"),
    ("partitions-huge", {"partitions": 1 << 40},
     "invalid argument: partitions (1099511627776) exceeds topic.max_partitions (128)"),
    ("retention-negative", {"retention_ms": -1}, ZERO.format("retention_ms")),
    ("retention-low", {"retention_ms": 1800000},
     "invalid argument: retention_ms (1800000) is below the minimum of 3600000 (1 hour)"),
    ("retention-just-below", {"retention_ms": HOUR - 1},
     "invalid argument: retention_ms (3599999) is below the minimum of 3600000 (1 hour)"),
    ("visibility", {"visibility_timeout_ms": -1}, ZERO.format("visibility_timeout_ms")),
    ("in-flight", {"max_in_flight_per_partition": -1}, ZERO.format("max_in_flight_per_partition")),
    ("acked-ahead", {"max_acked_ahead_per_partition": -5}, ZERO.format("max_acked_ahead_per_partition")),
    ("name-before-numbers", {"name": "a b", "partitions": 1}, NAME),
])
def what_create_refuses(c, members, text):
    name = members.get("name", c.fresh())
    body = members if not members or "name" in members else {"name": name, **members}
    c.api.post("/v1/topics", body).expect(400, error=text)
    listed = c.api.get("/v1/topics?limit=1000").expect(200).json["topics"]
    check(name not in [t["name"] for t in listed], "nothing was made")


@table("T1/201", [
    ("partitions-0", {"partitions": 0}, {"partitions": 4}), ("partitions-3", {"partitions": 3}, {"partitions": 3}),
    ("retention-0", {"retention_ms": 0}, {"retention_ms": 604800000}),
    ("retention-floor", {"retention_ms": HOUR}, {"retention_ms": HOUR}),
    ("zeros", {"visibility_timeout_ms": 0, "max_in_flight_per_partition": 0, "max_acked_ahead_per_partition": 0},
     {"visibility_timeout_ms": 30000, "max_in_flight_per_partition": 1024, "max_acked_ahead_per_partition": 1024}),
    ("own", {"visibility_timeout_ms": 1, "max_in_flight_per_partition": 1, "max_acked_ahead_per_partition": 2},
     {"visibility_timeout_ms": 1, "max_in_flight_per_partition": 1, "max_acked_ahead_per_partition": 2}),
    ("owner-is-ignored", {"owner": "bob"}, {}),
])
def what_create_takes(c, members, want):
    got = c.api.post("/v1/topics", {"name": c.fresh(), **members}).expect(201).json
    equal({k: got[k] for k in want}, want, "the topic")
    check("owner" not in got and "role" not in got and "schema" not in got, f"members: {sorted(got)}")


@table("T1/name", [("255", "n" * 240), ("one", ""), ("signs", "._-"), ("dots", "..."), ("case", "aA")])
def names_that_are_allowed(c, more):
    name = (more + "-" + c.fresh())[:255] if more != "n" * 240 else (c.fresh() + "-" + "n" * 255)[:255]
    c.topic(name=name)


@case("T1/integers")
def every_member_has_its_type(c):
    got = c.topic().details()
    for name in ("partitions", "retention_ms", "visibility_timeout_ms", "max_in_flight_per_partition",
                 "max_acked_ahead_per_partition", "created_at"):
        check(type(got[name]) is int, f"{name} is {got[name]!r}")
    check(got["created_at"] < 1 << 33, "seconds")


@table("T1/501", [("schema", {"schema": {"type": "object"}}), ("parent", {"parent": "p"}),
                  ("fanout-delay", {"parent": "p", "fanout_delay_ms": 5})])
def what_is_not_there_yet_is_said(c, members):
    topic = c.missing()
    c.api.post("/v1/topics", {"name": topic.name, **members}).expect(501, has="")
    c.api.get(topic.path).expect(404)


# --- get ---

@case("T12")
def details(c):
    got = c.topic(3).details()
    equal(got["partitions"], 3, "partitions")
    equal([p["index"] for p in got["partition_stats"]], [0, 1, 2], "indexes")
    check(all(p["segments"] >= 1 for p in got["partition_stats"]), "segments")
    equal(got["role"], "standalone", "role")


@case("T13")
def statistics_of_a_key(c):
    topic = c.topic(3)
    for _ in range(3):
        topic.put(key="fixed")
    ends = [p["next_offset"] for p in topic.stats()]
    equal(sorted(ends), [0, 0, 3], "next offsets")


@case("T14")
def a_topic_that_is_missing(c):
    c.api.get(c.missing().path).expect(404, error="topic not found")


@case("T15")
def one_partition(c):
    topic = c.topic(3)
    got = c.api.get(topic.path + "?partition=1").expect(200).json
    equal([p["index"] for p in got["partition_stats"]], [1], "indexes")
    equal(got["partitions"], 3, "partitions")


@case("T3/members")
def every_partition_has_its_statistics(c):
    topic = c.topic(3)
    topic.put(partition=1)
    for p in topic.stats():
        for name in ("index", "segments", "oldest_offset", "next_offset", "high_watermark", "size_bytes"):
            check(type(p[name]) is int and p[name] >= 0, f"{name} is {p.get(name)!r}")
        check(p["owner_node"], "owner_node")
    equal([p["high_watermark"] for p in topic.stats()], [0, 1, 0], "high watermarks")


@table("T3/400", [("word", "abc"), ("negative", "-1"), ("behind-the-last", "3"), ("fraction", "1.0"), ("huge", "9" * 30)])
def a_partition_that_is_none(c, value):
    c.api.get(f"{c.topic(3).path}?partition={value}").expect(400, error="invalid partition")


@case("T3/order")
def the_topic_is_looked_up_first(c):
    c.api.get(c.missing().path + "?partition=abc").expect(404, error="topic not found")


# --- list; names that sort behind all others of this run ---

@case("T17", first=True)
def an_empty_server(c):
    got = c.api.get("/v1/topics").expect(200).json
    if got["topics"]:
        raise Skipped("the server has topics")
    equal(got, {"next_page_token": "", "topics": []}, "the list")


def listed(c, query):
    got = c.api.get("/v1/topics?" + query).expect(200).json
    equal(sorted(got), ["next_page_token", "topics"], "members")
    return [t["name"] for t in got["topics"]], got["next_page_token"]


@case("T18")
def names_in_byte_order(c):
    base = c.fresh("y-") + "-"
    for name in ("zebra", "alpha", "mango", "Zulu", "alpha.1", "alpha-1"):
        c.topic(name=base + name)
    names, _ = listed(c, f"page_token={base}&limit=6")
    equal(names, [base + n for n in ("Zulu", "alpha", "alpha-1", "alpha.1", "mango", "zebra")], "names")
    got = c.api.get("/v1/topics?limit=1000").expect(200).json["topics"]
    check(all(t["role"] == "standalone" for t in got), "each with its role")


@case("T19")
def pages(c):
    base = c.fresh("zz-") + "-"
    for name in "abcd":
        c.topic(name=base + name)
    equal(listed(c, f"limit=2&page_token={base}"), ([base + "a", base + "b"], base + "b"), "the first page")
    names, token = listed(c, f"limit=2&page_token={base}b")
    equal(names, [base + "c", base + "d"], "the second page")
    if token:  # another run's topics lie behind
        check(token == base + "d", f"token {token}")
    equal(listed(c, "limit=2&page_token=zzzz"), ([], ""), "behind all")


@case("T21")
def limits_that_are_none(c):
    for value in ("0", "-5", "abc"):
        c.api.get("/v1/topics?limit=" + value).expect(400, error="limit must be a positive integer")


@case("T22")
def a_limit_that_is_too_large_is_cut(c):
    base = c.fresh("y-") + "-"
    for name in range(7):
        c.topic(name=f"{base}{name}")
    names, _ = listed(c, f"limit=999999&page_token={base}")
    equal(names[:7], [f"{base}{name}" for name in range(7)], "all of them")


@case("T23")
def a_token_need_not_exist(c):
    equal(listed(c, "page_token=zzzz"), ([], ""), "behind the last")


@case("T2/token-is-a-name-only")
def a_page_begins_behind_its_token(c):
    base = c.fresh("y-") + "-"
    for name in "ac":
        c.topic(name=base + name)
    equal(listed(c, f"limit=1&page_token={base}b")[0], [base + "c"], "behind b")
    equal(listed(c, f"limit=1&page_token={base}a")[0], [base + "c"], "behind a")


# --- alter ---

@case("T30")
def more_partitions(c):
    topic = c.topic(3)
    got = c.api.patch(topic.path, {"partitions": 6}).expect(200).json
    equal((got["partitions"], got["role"]), (6, "standalone"), "the topic")
    wait_until(lambda: len(topic.stats()) == 6, "six partitions are there")
    for partition in range(6):
        topic.put(partition=partition)


@case("T31")
def not_fewer_partitions(c):
    topic = c.topic(4)
    for partitions in (3, 4):
        c.api.patch(topic.path, {"partitions": partitions}).expect(400, has="must be greater than current (4)")


@case("T32")
def not_too_many_partitions(c):
    c.api.patch(c.topic().path, {"partitions": 129}).expect(400)


@case("T33")
def another_retention(c):
    equal(c.api.patch(c.topic().path, {"retention_ms": 7200000}).expect(200).json["retention_ms"], 7200000, "retention")


@case("T34")
def retention_0_is_the_default(c):
    topic = c.topic(retention_ms=HOUR)
    equal(c.api.patch(topic.path, {"retention_ms": 0}).expect(200).json["retention_ms"], 604800000, "retention")


@case("T35")
def a_retention_that_is_refused(c):
    topic = c.topic()
    for value in (-100, 1800000):
        c.api.patch(topic.path, {"retention_ms": value}).expect(400)


@case("T36")
def nothing_to_change(c):
    c.api.patch(c.topic().path, {}).expect(400, has="at least one of")


@case("T37")
def a_missing_topic(c):
    c.api.patch(c.missing().path, {"partitions": 5}).expect(404, error="topic not found")


@case("T41")
def a_cap_is_raised_at_once(c):
    topic = c.topic(max_in_flight_per_partition=1)
    for _ in range(3):
        topic.put(partition=0)
    topic.consume().expect(200)
    topic.consume().expect(204)
    c.api.patch(topic.path, {"max_in_flight_per_partition": 5}).expect(200)
    topic.consume().expect(200)


@case("T42")
def traffic_goes_on_over_an_alter(c):
    topic = c.topic()
    topic.put(b"0", partition=0)
    c.api.patch(topic.path, {"retention_ms": HOUR}).expect(200)
    topic.put(b"1", partition=0)
    equal([topic.take("?partition=0")["offset"] for _ in range(2)], [0, 1], "offsets")


NOTHING = "at least one of partitions, retention_ms, max_*_per_partition, or schema is required"


@table("T4/400", [
    ("nothing", {}, NOTHING), ("nulls", {"retention_ms": None, "partitions": None}, NOTHING),
    ("partitions-0", {"partitions": 0}, NOTHING),
    ("partitions", {"partitions": -1}, "partitions must be > 0"),
    ("retention", {"retention_ms": -1}, "retention_ms must be >= 0 (0 = use default)"),
    ("in-flight", {"max_in_flight_per_partition": -1}, "max_in_flight_per_partition must be >= 0 (0 = use default)"),
    ("acked-ahead", {"max_acked_ahead_per_partition": -1},
     "max_acked_ahead_per_partition must be >= 0 (0 = use default)"),
    ("fewer", {"partitions": 3},
     "invalid argument: new partition count (3) must be greater than current (4); decrease is not supported"),
    ("as-many", {"partitions": 4},
     "invalid argument: new partition count (4) must be greater than current (4); decrease is not supported"),
    ("too-many", {"partitions": 129}, "invalid argument: partitions (129) exceeds topic.max_partitions (128)"),
    ("low-retention", {"retention_ms": 1800000},
     "invalid argument: retention_ms (1800000) is below the minimum of 3600000 (1 hour)"),
    ("visibility", {"visibility_timeout_ms": 1}, 'invalid json: json: unknown field "visibility_timeout_ms"'),
    ("name", {"name": "x"}, 'invalid json: json: unknown field "name"'),
])
def what_alter_refuses(c, body, text):
    topic = c.topic(4)
    before = topic.details()
    c.api.patch(topic.path, body).expect(400, error=text)
    after = topic.details()
    equal({k: after[k] for k in after if k != "partition_stats"},
          {k: before[k] for k in before if k != "partition_stats"}, "the topic as it was")


@table("T4/200", [
    ("in-flight", {"max_in_flight_per_partition": 7}, {"max_in_flight_per_partition": 7, "max_acked_ahead_per_partition": 9}),
    ("acked-ahead", {"max_acked_ahead_per_partition": 7},
     {"max_in_flight_per_partition": 8, "max_acked_ahead_per_partition": 7}),
    ("both", {"max_in_flight_per_partition": 2, "max_acked_ahead_per_partition": 3},
     {"max_in_flight_per_partition": 2, "max_acked_ahead_per_partition": 3}),
    ("in-flight-0", {"max_in_flight_per_partition": 0},
     {"max_in_flight_per_partition": 1024, "max_acked_ahead_per_partition": 9}),
    ("all", {"retention_ms": HOUR, "max_in_flight_per_partition": 2, "partitions": 5},
     {"retention_ms": HOUR, "max_in_flight_per_partition": 2, "partitions": 5}),
    ("retention-and-partitions-0", {"retention_ms": HOUR, "partitions": 0}, {"retention_ms": HOUR, "partitions": 3}),
])
def what_alter_changes(c, body, want):
    topic = c.topic(max_in_flight_per_partition=8, max_acked_ahead_per_partition=9)
    got = c.api.patch(topic.path, body).expect(200).json
    equal({k: got[k] for k in want}, want, "the answer")
    equal(got["role"], "standalone", "role")
    after = topic.details()
    equal({k: after[k] for k in want}, want, "the topic")


@case("T4/groups")
def what_came_before_a_failure_stays(c):
    topic = c.topic()
    c.api.patch(topic.path, {"retention_ms": 7200000, "partitions": 2}).expect(400)
    equal((topic.details()["retention_ms"], topic.details()["partitions"]), (7200000, 3), "retention, partitions")


@table("T4/order", [("value-first", {"retention_ms": 5}, 400), ("then-topic", {"retention_ms": HOUR}, 404),
                    ("negative", {"partitions": -1}, 400), ("too-many", {"partitions": 129}, 400),
                    ("json", {"x": 1}, 400), ("caps", {"max_in_flight_per_partition": 5}, 404)])
def values_are_judged_before_the_topic_is_looked_up(c, body, status):
    c.api.patch(c.missing().path, body).expect(status, has="topic not found" if status == 404 else "")


@case("T4/501")
def schemas_are_not_there_yet(c):
    c.api.patch(c.topic().path, {"schema": {"type": "object"}}).expect(501, has="")


# --- delete ---

@case("T43")
def a_topic_goes(c):
    topic = c.topic()
    topic.put()
    c.api.delete(topic.path).expect(204)
    c.api.get(topic.path).expect(404)
    c.api.delete(topic.path).expect(404, error="topic not found")


@case("T44")
def a_name_begins_anew(c):
    topic = c.topic()
    topic.put(b"old", partition=0)
    c.api.delete(topic.path).expect(204)
    again = c.topic(name=topic.name)
    again.put(b"new", partition=0)
    message = again.take("?partition=0&wait=5s")
    equal((message["offset"], message["payload"]), (0, "new"), "the first record")


@case("T46")
def others_stay(c):
    keep, drop = c.topic(), c.topic()
    c.api.delete(drop.path).expect(204)
    c.api.get(keep.path).expect(200)


@case("T5/body")
def a_body_is_ignored(c):
    c.api.delete(c.topic().path, body=json.dumps({"x": 1}).encode()).expect(204)


@case("T5/waiting-consumer")
def a_poll_of_a_topic_that_goes_ends(c):
    topic = c.topic()

    def poll():
        return topic.consume("?wait=5s").expect(404, 204)

    def drop():
        wait_until(lambda: topic.stats(), "the topic is there")
        c.api.delete(topic.path).expect(204)

    in_parallel(poll, drop)
    Topic(c.api, topic.name).consume().expect(404, error="topic not found")
