"""A client of the API that trusts nothing: every answer is checked for what all answers must keep."""

import base64
import http.client
import json
import socket
import ssl
import threading
import urllib.parse

PATIENCE = 120  # seconds for what takes milliseconds: a slow machine is no failure
ROUTER_STATUSES = (404, 405, 431)  # those that may be plain text


class Failed(AssertionError):
    """What a case says when the server is not as it should be."""


def check(condition, why):
    if not condition:
        raise Failed(why)


def equal(got, want, what):
    check(got == want, f"{what}: {got!r:.300}, not {want!r:.300}")


def quote(text):
    return urllib.parse.quote(text, safe="")


def shorten(data):
    return repr(data if len(data) <= 300 else data[:200] + b"..." + data[-60:])


def number(text):
    """Numbers in a payload may be longer than this interpreter converts."""
    return int(text) if len(text) < 100 else text


class Answer:
    """One answer. `request` is how it is told in a failure."""

    def __init__(self, request, status, headers, body, head=False, form=True):
        self.request, self.status, self.headers, self.body = request, status, headers, body
        self.head = head
        if form:
            self.check_form()

    def header(self, name):
        return self.headers.get(name)

    def fail(self, why):
        raise Failed(f"{self.request} -> {self.status} {shorten(self.body)}: {why}")

    def check_form(self):
        """Sections 1.3 and 1.4."""
        kind = self.header("Content-Type")
        if self.status == 204 and self.body:
            self.fail("a 204 with a body")
        if self.header("Transfer-Encoding"):
            self.fail("a chunked answer")
        if self.status != 204 and self.status >= 200 and self.header("Content-Length") is None:
            self.fail("no Content-Length")
        if self.head or self.status < 200:
            return
        if kind == "application/json":
            self.check_json()
        elif self.status >= 400 and self.status not in ROUTER_STATUSES:
            self.fail(f"an error as {kind}")

    def check_json(self):
        if not self.body.endswith(b"\n"):
            self.fail("no line end behind the JSON")
        try:
            value = self.json
        except RecursionError:
            return  # deep payloads are compared as bytes
        except ValueError as error:
            self.fail(f"not JSON: {error}")
        if self.status >= 400 and "status" not in value:
            if list(value) != ["error"] or not isinstance(value["error"], str):
                self.fail("an error is one member `error`, a string")

    @property
    def json(self):
        return json.loads(self.body.decode("utf-8"), parse_int=number)

    def expect(self, *statuses, error=None, has=None):
        """The status, and the error's text: equal to `error`, or holding `has`."""
        if self.status not in statuses:
            self.fail("not " + " or ".join(map(str, statuses)))
        if self.status == 200 and not self.head and self.header("Content-Type") is None:
            self.fail("a 200 without a Content-Type")
        if error is not None or has is not None:
            if self.header("Content-Type") != "application/json":
                self.fail("the error is not JSON")
            text = self.json.get("error")
            if error is not None and text != error:
                self.fail(f"not the text {error!r}")
            if has is not None and has not in text:
                self.fail(f"the text lacks {has!r}")
        return self

    def router(self, status):
        """The router's own answer: plain text."""
        self.expect(status)
        equal(self.header("Content-Type"), "text/plain; charset=utf-8", f"{self.request}: type")
        equal(self.header("X-Content-Type-Options"), "nosniff", f"{self.request}: options")
        want = b"404 page not found\n" if status == 404 else b"Method Not Allowed\n"
        if not self.head:
            equal(self.body, want, f"{self.request}: body")
        return self


class Api:
    """One server, and who calls it."""

    local = threading.local()

    def __init__(self, base_url, credentials=None, headers=(), seen=None):
        parts = urllib.parse.urlsplit(base_url)
        self.base_url, self.tls = base_url, parts.scheme == "https"
        self.host, self.port = parts.hostname, parts.port or (443 if self.tls else 80)
        self.credentials = credentials
        self.always = dict(headers)
        self.seen = seen  # a list that gets every answer

    def by(self, name, password):
        return Api(self.base_url, (name, password), self.always, self.seen)

    def anonymous(self):
        return Api(self.base_url, None, self.always, self.seen)

    def connection(self):
        """This thread's, kept alive."""
        kept = self.local.__dict__.setdefault("connections", {})
        key = (self.tls, self.host, self.port)
        if key not in kept:
            if self.tls:
                context = ssl._create_unverified_context()  # what is tested is behind the certificate
                kept[key] = http.client.HTTPSConnection(self.host, self.port, timeout=PATIENCE, context=context)
            else:
                kept[key] = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        return kept[key]

    @classmethod
    def forget_connections(cls):
        for connection in cls.local.__dict__.pop("connections", {}).values():
            connection.close()

    def authorization(self):
        if self.credentials is None:
            return {}
        text = ":".join(self.credentials).encode()
        return {"Authorization": "Basic " + base64.b64encode(text).decode()}

    def send(self, method, path, body=None, headers=(), chunked=False):
        """`body`: bytes as they are, an iterable of them with `chunked`, anything else as JSON."""
        if body is not None and not isinstance(body, bytes) and not chunked:
            body = json.dumps(body).encode()
        sent = {**self.always, **self.authorization(), **dict(headers)}
        connection = self.connection()
        try:
            try:
                connection.request(method, path, body=body, headers=sent, encode_chunked=chunked)
            except (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
                pass  # it refuses what it has not read; its answer is there
            response = connection.getresponse()
            data = response.read()
        except BaseException as error:
            connection.close()
            if isinstance(error, (OSError, http.client.HTTPException)):
                raise Failed(f"{method} {path:.200}: {type(error).__name__}: {error}") from error
            raise
        answer = Answer(f"{method} {path:.200}", response.status, response.headers, data, method == "HEAD")
        if self.seen is not None:
            self.seen.append(answer)
        return answer

    def get(self, path, **more):
        return self.send("GET", path, **more)

    def head(self, path, **more):
        return self.send("HEAD", path, **more)

    def post(self, path, body=None, **more):
        return self.send("POST", path, body, **more)

    def put(self, path, body=None, **more):
        return self.send("PUT", path, body, **more)

    def patch(self, path, body=None, **more):
        return self.send("PATCH", path, body, **more)

    def delete(self, path, **more):
        return self.send("DELETE", path, **more)

    # --- bytes as they are ---

    def open(self):
        plain = socket.create_connection((self.host, self.port), timeout=PATIENCE)
        if self.tls:
            return ssl._create_unverified_context().wrap_socket(plain)
        return plain

    def raw(self, data, method="GET", answers=1, closes=False, form=True):
        """Send `data`; the answers. `closes`: nothing comes behind them but the end of the connection. Without `form`
        they may be of the HTTP library itself, which has a form of its own."""
        with self.open() as wire:
            try:
                wire.sendall(data)
            except OSError:
                pass  # refused before it was read
            got = read_answers(wire, data, method, answers, form)
            if closes:
                check_closed(wire)
            return got


def check_closed(wire):
    try:
        rest = wire.recv(4096)
    except ConnectionResetError:
        return  # closed over what it did not read
    except TimeoutError as error:
        raise Failed("the connection stays") from error
    equal(rest, b"", "bytes behind the last answer")


def read_answers(wire, data, method="GET", count=1, form=True):
    """So many answers from a socket."""
    got = []
    file = wire.makefile("rb")
    for _ in range(count):
        response = http.client.HTTPResponse(Shared(file), method=method)
        try:
            response.begin()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise Failed(f"{data[:80]!r}: {type(error).__name__}: {error}") from error
        got.append(Answer(repr(data[:80]), response.status, response.headers, body, method == "HEAD", form))
    return got


class Shared:
    """A file that several responses read from one after the other."""

    def __init__(self, file):
        self.file = file

    def makefile(self, _mode):
        return Unclosed(self.file)


class Unclosed:
    def __init__(self, file):
        self.file = file

    def __getattr__(self, name):
        return getattr(self.file, name)

    def close(self):
        pass
