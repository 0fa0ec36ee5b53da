"""Passwords and their hashes are nowhere to be read (I-109). Last, when the other cases have left their traces."""

import base64
import os
import re

from cases import SEC, Failed, Skipped, case, check, wait_until

HASH = re.compile(rb"\$2[abxy]\$[0-9]{2}\$[./A-Za-z0-9]{20}")


def forms(name, password):
    """A secret as somebody could let it slip: plain, or as it travels."""
    yield password.encode()
    yield base64.b64encode(f"{name}:{password}".encode())


@case("secret_scan", SEC)
def secrets_are_nowhere(c):
    marked = "s3cr3t-" + c.fresh()
    user = c.user(("produce", "a"), password=marked)
    name = user.credentials[0]
    user.get("/v1/topics").expect(200)
    user.get("/v1/users").expect(403)
    c.api.by(name, marked + "-wrong").get("/v1/topics").expect(401)
    c.api.by("ghost", marked + "-unknown").get("/v1/topics").expect(401)
    user.put(f"/v1/users/{name}/password", {"current_password": marked + "-no", "new_password": "x"}).expect(403)
    user.put(f"/v1/users/{name}/password", {"current_password": marked, "new_password": marked + "-2"}).expect(204)
    c.api.put(f"/v1/users/{name}/password", {"new_password": marked + "-3", "x": 1}).expect(400)
    c.api.post("/v1/users", {"username": "a b", "password": marked}).expect(400)
    c.api.post("/v1/users", b'{"username":"u","password":"' + marked.encode()).expect(400)
    c.api.post("/v1/users", {"username": "u", "password": marked, "grants": marked}).expect(400)
    c.api.get("/v1/topics?page_token=x").expect(200)
    metrics = c.api.get("/metrics").expect(200).body
    secrets = [marked.encode(), base64.b64encode(f"{name}:{marked}".encode()), c.api.credentials[1].encode(),
               base64.b64encode(":".join(c.api.credentials).encode())]
    places = [("metrics", metrics)] + [(a.request, a.body + str(a.headers).encode()) for a in list(c.api.seen)]
    if c.node is not None:
        places.append(("the log", c.node.log().encode()))
    for place, data in places:
        check(not HASH.search(data), f"a hash in {place}")
        for secret in secrets:
            check(secret not in data, f"{secret!r} in {place}")


@case("secret_scan/disk", SEC)
def no_password_is_on_the_disk(c):
    if c.node is None:
        raise Skipped("the server's disk is not ours")
    marked = "d1sk-" + c.fresh()
    user = c.user(password=marked)
    user.get("/v1/topics").expect(200)
    c.api.put(f"/v1/users/{user.credentials[0]}/password", {"new_password": marked + "-2"}).expect(204)
    seen = 0
    for folder, _, files in os.walk(c.node.directory):
        for file in files:
            path = os.path.join(folder, file)
            if not os.path.isfile(path):
                continue  # the socket
            for secret in (*forms(user.credentials[0], marked), b"admin-secret"):
                check(not holds(path, secret), f"{secret!r} in {os.path.relpath(path, c.node.directory)}")
            seen += 1
    check(seen > 3, "files were looked at")


def holds(path, secret):
    """Is `secret` in the file? Read in pieces that overlap."""
    kept = b""
    try:
        with open(path, "rb") as file:
            while piece := file.read(8 << 20):
                if secret in kept + piece:
                    return True
                kept = piece[-len(secret):]
    except FileNotFoundError:
        pass  # gone meanwhile
    return False


@case("1.7/audit", SEC, first=True)  # alone: of refusals the log holds at most ten lines of one kind a second
def what_matters_is_in_the_audit_log(c):
    if c.node is None:
        raise Skipped("the server's log is not ours")
    user = c.user()
    name = user.credentials[0]

    def refused():
        """Whoever waited for the root account may have used this second up."""
        c.api.by(name, "wrong").get("/v1/topics").expect(401)
        return "authentication failed" not in lacking()
    events = ("user create", "authentication failed", "user grants", "user password", "user delete")

    def lacking():
        lines = [line for line in c.node.log().splitlines() if '"component":"audit"' in line and name in line]
        return [event for event in events if not any(f'"msg":"{event}"' in line for line in lines)]

    try:
        wait_until(refused, "who is refused", 30)
        c.api.put(f"/v1/users/{name}/grants", {"grants": []}).expect(200)
        c.api.put(f"/v1/users/{name}/password", {"new_password": "x"}).expect(204)
        c.api.delete(f"/v1/users/{name}").expect(204)
        wait_until(lambda: not lacking(), "all of them", 30)
    except AssertionError:
        raise Failed(f"the audit log does not tell of {name}: {lacking()}") from None
