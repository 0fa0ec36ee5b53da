"""Strict JSON of request bodies, the same on every route that takes one (section 1.5)."""

from cases import case, check, equal, table

# name, method, path, a member of the route and its type
ROUTES = [
    ("create", "POST", "/v1/topics", "name"), ("alter", "PATCH", "/v1/topics/{t}", "partitions"),
    ("user", "POST", "/v1/users", "username"), ("grants", "PUT", "/v1/users/ghost-of-json/grants", "grants"),
    ("password", "PUT", "/v1/users/ghost-of-json/password", "new_password"),
    ("produce-batch", "POST", "/v1/topics/{t}/produce/batch", "messages"),
    ("ack-batch", "POST", "/v1/topics/{t}/ack", "receipt_handles"),
]

# name, body, text (equal when it ends with a full stop's absence; "~": within)
BAD = [
    ("empty", b"", "invalid json: EOF"), ("blanks", b" \t\r\n ", "invalid json: EOF"),
    ("truncated-object", b"{", "invalid json: unexpected EOF"),
    ("truncated-name", b'{"na', "invalid json: unexpected EOF"),
    ("truncated-behind-a-name", b'{"x"', "invalid json: unexpected EOF"),
    ("truncated-value", b'{"x":tr', "invalid json: unexpected EOF"),
    ("truncated-string", b'"abc', "invalid json: unexpected EOF"),
    ("syntax", b"{not json}", "~invalid json: invalid character 'n'"),
    ("single-quotes", b"{'name':1}", "~invalid json: "), ("no-quotes", b"{name:1}", "~invalid json: "),
    ("comma-behind", b'{"%m":null,}', "~invalid json: "), ("comma-first", b"{,}", "~invalid json: "),
    ("no-colon", b'{"%m" null}', "~invalid json: "), ("comment", b"{} // x", "~invalid json: "),
    ("zero-in-front", b'{"%m":01}', "~invalid json: "), ("plus", b'{"%m":+1}', "~invalid json: "),
    ("point-behind", b'{"%m":1.}', "~invalid json: "), ("point-first", b'{"%m":.5}', "~invalid json: "),
    ("NaN", b'{"%m":NaN}', "~invalid json: "), ("control-in-a-string", b'{"a\x01":1}', "~invalid json: "),
    ("line-end-in-a-string", b'{"a\n":1}', "~invalid json: "), ("bad-escape", b'{"\\x":1}', "~invalid json: "),
    ("half-an-escape", b'{"\\u12":1}', "~invalid json: "), ("byte-order-mark", b"\xef\xbb\xbf{}", "~invalid json: "),
    ("nul", b"\x00", "~invalid json: "), ("nul-behind", b"{}\x00", "~invalid json: "),
    ("unknown-member", b'{"garbage":1}', 'invalid json: json: unknown field "garbage"'),
    ("unknown-member-null", b'{"garbage":null}', 'invalid json: json: unknown field "garbage"'),
    ("unknown-member-first", b'{"garbage":{"a":[1,2]},"%m":null}', 'invalid json: json: unknown field "garbage"'),
    ("second-value", b"{}{}", "invalid json: multiple JSON values"),
    ("second-value-null", b"{} null", "invalid json: multiple JSON values"),
    ("array", b"[]", "~invalid json: json: cannot unmarshal"),
    ("string", b'"x"', "~invalid json: json: cannot unmarshal"), ("number", b"1", "~invalid json: json: cannot unmarshal"),
    ("true", b"true", "~invalid json: json: cannot unmarshal"),
    ("deep", b'{"%m":' + b"[" * 10001 + b"]" * 10001 + b"}", "~invalid json: "),
    ("very-deep", b"[" * 200000, "~invalid json: "), ("very-deep-objects", b'{"a":' * 100000, "~invalid json: "),
]
# Without a body an ack lacks its handle, and above 64 KiB it is too large.
OF_AN_ACK = [name for name, body, _ in BAD if body.strip() and len(body) < 60000]
BAD_ROWS = [(f"{name}/{route}", method, path, member, body, text) for route, method, path, member in ROUTES
            for name, body, text in BAD if route != "ack-batch" or name in OF_AN_ACK]


@table("1.5", BAD_ROWS)
def a_body_that_is_not_one_object_of_known_members(c, method, path, member, body, text):
    path = path.format(t=c.topic().name) if "{t}" in path else path
    answer = c.api.send(method, path, body.replace(b"%m", member.encode()))
    answer.expect(400, **({"has": text[1:]} if text[0] == "~" else {"error": text}))


WRONG_TYPES = [("string", b'"3"'), ("fraction", b"3.5"), ("point-zero", b"3.0"), ("exponent", b"3e0"), ("true", b"true"),
               ("array", b"[3]"), ("object", b'{"a":3}'), ("large", b"9223372036854775808"),
               ("small", b"-9223372036854775809"), ("huge", b"1" * 400)]
INTEGERS = [("create", "POST", "/v1/topics", name) for name in
            ("partitions", "retention_ms", "visibility_timeout_ms", "max_in_flight_per_partition",
             "max_acked_ahead_per_partition")]
INTEGERS += [("alter", "PATCH", "/v1/topics/{t}", name) for name in
             ("partitions", "retention_ms", "max_in_flight_per_partition", "max_acked_ahead_per_partition")]


@table("1.5/wrong-type", [(f"{route}-{member}-{name}", method, path, member, value)
                          for route, method, path, member in INTEGERS for name, value in WRONG_TYPES])
def an_integer_is_an_integer(c, method, path, member, value):
    path = path.format(t=c.topic().name) if "{t}" in path else path
    body = b'{"name":"%b","%b":%b}' if method == "POST" else b'{"%b":%b}'
    parts = (c.fresh().encode(), member.encode(), value)
    c.api.send(method, path, body % parts[-body.count(b"%b"):]).expect(400, has="invalid json: json: cannot unmarshal")


@table("1.5/wrong-type", [(f"{name}-{kind}", method, path, body, value)
                          for name, method, path, body in [
                              ("name", "POST", "/v1/topics", b'{"name":%b}'),
                              ("username", "POST", "/v1/users", b'{"username":%b}'),
                              ("password", "POST", "/v1/users", b'{"username":"a","password":%b}'),
                              ("new-password", "PUT", "/v1/users/x/password", b'{"new_password":%b}')]
                          for kind, value in [("number", b"1"), ("true", b"true"), ("array", b"[]"), ("object", b"{}")]])
def a_string_is_a_string(c, method, path, body, value):
    c.api.send(method, path, body % value).expect(400, has="invalid json: json: cannot unmarshal")


@table("1.5/wrong-type", [(f"{name}-{kind}", method, path, body, value)
                          for name, method, path, body in [
                              ("grants-of-a-user", "POST", "/v1/users", b'{"username":"a","password":"b","grants":%b}'),
                              ("grants", "PUT", "/v1/users/x/grants", b'{"grants":%b}'),
                              ("handles", "POST", "/v1/topics/{t}/ack", b'{"receipt_handles":%b}'),
                              ("messages", "POST", "/v1/topics/{t}/produce/batch", b'{"messages":%b}')]
                          for kind, value in [("number", b"1"), ("string", b'"a"'), ("object", b"{}"), ("of-numbers", b"[1]")]])
def a_list_is_a_list(c, method, path, body, value):
    path = path.format(t=c.topic().name) if "{t}" in path else path
    c.api.send(method, path, body % value).expect(400, has="invalid json: json: cannot unmarshal")


@case("1.5/null/create")
def top_level_null_is_an_empty_object(c):
    c.api.post("/v1/topics", b"null").expect(400, error="invalid argument: name required")
    c.api.post("/v1/topics", b" {} ").expect(400, error="invalid argument: name required")


@case("1.5/null/alter")
def top_level_null_changes_nothing(c):
    c.api.patch(c.topic().path, b"null").expect(400, has="at least one of")


@case("1.5/null/users")
def top_level_null_lacks_everything(c):
    c.api.post("/v1/users", b"null").expect(400, has="username must match")
    c.api.put("/v1/users/x/password", b"null").expect(400, error="new_password required")


@case("1.5/null/batches")
def top_level_null_lists_nothing(c):
    topic = c.topic()
    c.api.post(f"{topic.path}/produce/batch", b"null").expect(400, error="messages required")
    c.api.post(f"{topic.path}/ack", b"null").expect(400, error="receipt_handles required")


@case("1.5/null/members")
def a_null_member_is_left_out(c):
    body = b'{"name":"%b","partitions":null,"retention_ms":null,"visibility_timeout_ms":null,' \
           b'"max_in_flight_per_partition":null,"max_acked_ahead_per_partition":null,"owner":null}'
    got = c.api.post("/v1/topics", body % c.fresh().encode()).expect(201).json
    equal((got["partitions"], got["retention_ms"], got["visibility_timeout_ms"]), (4, 604800000, 30000), "defaults")
    topic = c.topic()
    c.api.patch(topic.path, b'{"partitions":null}').expect(400, has="at least one of")
    c.api.post("/v1/topics", b'{"name":null}').expect(400, error="invalid argument: name required")


@case("1.5/duplicate")
def the_last_of_a_name_wins(c):
    first, last = c.fresh(), c.fresh()
    body = b'{"name":"%b","partitions":5,"name":"%b","partitions":6}' % (first.encode(), last.encode())
    got = c.api.post("/v1/topics", body).expect(201).json
    equal((got["name"], got["partitions"]), (last, 6), "what was made")
    c.api.get("/v1/topics/" + first).expect(404)


@table("1.5/letter-case", [("upper", b"NAME", b"PARTITIONS"), ("mixed", b"Name", b"parTitions")])
def names_of_members_are_taken_in_any_letter_case(c, name, partitions):
    body = b'{"%b":"%b","%b":6}' % (name, c.fresh().encode(), partitions)
    equal(c.api.post("/v1/topics", body).expect(201).json["partitions"], 6, "partitions")


@case("1.5/letter-case/duplicate")
def another_letter_case_is_the_same_name(c):
    name = c.fresh()
    body = b'{"name":"other","NAME":"%b"}' % name.encode()
    equal(c.api.post("/v1/topics", body).expect(201).json["name"], name, "the last one")


@case("1.5/escaped-names")
def names_may_be_escaped(c):
    name = c.fresh()
    coded = "".join(f"\\u{ord(ch):04x}" for ch in name)
    body = f'{{"\\u006eame":"{coded}"}}'.encode()
    equal(c.api.post("/v1/topics", body).expect(201).json["name"], name, "name")


@case("1.5/whitespace")
def blanks_around_do_not_matter(c):
    body = b' \r\n\t{ "name" :\n"%b" , "partitions"\t:\r3 } \n\n' % c.fresh().encode()
    c.api.post("/v1/topics", body).expect(201)


@case("1.5/depth-at-the-limit")
def an_allowed_depth_is_read(c):
    # Of a batch, where payloads may nest; the object, the list and the message are three levels.
    topic = c.topic()
    deep = b"[" * 9990 + b"]" * 9990
    c.api.post(f"{topic.path}/produce/batch", b'{"messages":[{"payload":' + deep + b"}]}").expect(202)
    check(deep in topic.arrives("?wait=5s").body, "the same bytes")


@case("1.5/int64")
def numbers_of_64_bits_are_read(c):
    body = b'{"name":"%b","retention_ms":%d}'
    c.api.post("/v1/topics", body % (c.fresh().encode(), -(1 << 63))).expect(400, has="retention_ms must be >= 0")
