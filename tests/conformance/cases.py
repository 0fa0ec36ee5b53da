"""The register of cases, what a case may use, and the run."""

import concurrent.futures
import itertools
import os
import re
import sys
import threading
import time
import traceback

from api import Api, Failed, check, equal, quote

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from waiting import wait_until  # noqa: E402

OPEN, SEC, V3, SEC3 = "OPEN", "SEC", "V3", "SEC3"
REGISTER = []
ADMIN = ("admin", "admin-secret")


class Skipped(Exception):
    """This server, as it is, cannot be asked that."""


class Entry:
    def __init__(self, name, profile, run, first):
        self.name, self.profile, self.run, self.first = name, profile, run, first


def case(name, profile=OPEN, first=False):
    """Register a function of one Case. `first`: alone, before all others."""
    def register(function):
        check(all(e.name != name or e.profile != profile for e in REGISTER), f"{name} is there twice")
        REGISTER.append(Entry(name, profile, function, first))
        return function
    return register


def table(prefix, rows, profile=OPEN):
    """One case for each row: (name, arguments...), given to the decorated function."""
    def register(function):
        for row in rows:
            name, arguments = row[0], row[1:]
            case(f"{prefix}/{name}", profile)(lambda c, arguments=arguments: function(c, *arguments))
        return function
    return register


class Topic:
    """A topic of a case, and the usual requests on it."""

    def __init__(self, api, name):
        self.api, self.name, self.path = api, name, "/v1/topics/" + quote(name)

    def by(self, api):
        return Topic(api, self.name)

    def details(self):
        return self.api.get(self.path).expect(200).json

    def stats(self):
        return self.details()["partition_stats"]

    def visible(self):
        return sum(p["high_watermark"] for p in self.stats())

    def produce(self, body=b'{"v":1}', query="", **more):
        return self.api.post(f"{self.path}/produce{query}", body, **more)

    def put(self, body=b'{"v":1}', key=None, partition=None):
        """Produce, and wait until it can be seen (PUB)."""
        before = self.visible()
        pairs = [] if key is None else ["key=" + quote(key)]
        pairs += [] if partition is None else [f"partition={partition}"]
        self.produce(body, "?" + "&".join(pairs)).expect(202)
        wait_until(lambda: self.visible() == before + 1, f"what was produced to {self.name} is visible")

    def consume(self, query="", **more):
        return self.api.get(f"{self.path}/consume{query}", **more)

    def arrives(self, query="?wait=5s", **more):
        """The answer with a message that is there or on its way."""
        def look():
            answer = self.consume(query, **more).expect(200, 204)
            return answer if answer.status == 200 else None
        return wait_until(look, f"a message of {self.name} with {query}")

    def take(self, query="?wait=5s"):
        """The message itself."""
        return self.arrives(query).json

    def take_all(self, query=""):
        taken = []
        while True:
            answer = self.consume(query).expect(200, 204)
            if answer.status == 204:
                return taken
            taken.append(answer.json)

    def settle(self, handle, more=""):
        handle = handle["receipt_handle"] if isinstance(handle, dict) else handle
        return self.api.post(f"{self.path}/ack?receipt_handle={quote(handle)}{more}")


class Case:
    """What a case gets: a server, and names of its own."""

    counter = itertools.count(1)
    stamp = f"{os.getpid():x}{time.time_ns() // 1000000 & 0xffffff:x}"

    def __init__(self, entry, api, node):
        self.name, self.api, self.node = entry.name, api, node

    def fresh(self, prefix=""):
        """A name that nobody has."""
        plain = re.sub(r"[^A-Za-z0-9]+", "-", self.name)[:40]
        return f"{prefix}{plain}-{self.stamp}-{next(self.counter)}"

    def topic(self, partitions=3, name=None, api=None, **members):
        """A new topic all of whose partitions are there (MK)."""
        topic = Topic(api or self.api, name or self.fresh())
        topic.api.post("/v1/topics", {"name": topic.name, "partitions": partitions, **members}).expect(201)
        wait_until(lambda: len(topic.stats()) == partitions, f"{topic.name} has its partitions")
        return topic

    def missing(self):
        return Topic(self.api, self.fresh("missing-"))

    def user(self, *grants, password=None):
        """A new user with grants like ("produce", "a-*"); its Api."""
        name, password = self.fresh("u")[-60:], password or "pw-" + self.fresh()[-60:]
        body = {"username": name, "password": password, "grants": [grant(*g) for g in grants]}
        self.api.post("/v1/users", body).expect(201)
        return self.api.by(name, password)


def grant(action, *patterns):
    return {"action": action, "patterns": list(patterns)} if patterns else {"action": action}


def in_parallel(*functions):
    """Run them at the same time; their results in order. The first failure is raised."""
    with concurrent.futures.ThreadPoolExecutor(len(functions)) as pool:
        def run(function):
            try:
                return function()
            finally:
                Api.forget_connections()
        return [f.result() for f in [pool.submit(run, function) for function in functions]]


class Run:
    """All chosen cases against one server."""

    def __init__(self, api, node, jobs, out=sys.stdout):
        self.api, self.node, self.jobs, self.out = api, node, jobs, out
        self.lock = threading.Lock()
        self.counts = {"ok": 0, "FAILED": 0, "skipped": 0}

    def tell(self, verdict, name, why=""):
        with self.lock:
            self.counts[verdict] += 1
            print(verdict, name, why.replace("\n", "\n    "), file=self.out, flush=True)

    def one(self, entry):
        try:
            entry.run(Case(entry, self.api, self.node))
            self.tell("ok", f"{entry.name} [{entry.profile}]")
        except Skipped as why:
            self.tell("skipped", entry.name, str(why))
        except Failed as why:
            self.tell("FAILED", entry.name, str(why))
        except Exception as error:
            where = "".join(traceback.format_exception(error)[-3:])
            self.tell("FAILED", entry.name, where if not isinstance(error, AssertionError) else str(error))
        finally:
            Api.forget_connections()

    def all(self, entries):
        for entry in [e for e in entries if e.first]:
            self.one(entry)
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            list(pool.map(self.one, [e for e in entries if not e.first]))
        return self.counts


__all__ = ["ADMIN", "OPEN", "REGISTER", "SEC", "SEC3", "V3", "Case", "Failed", "Run", "Skipped", "Topic", "case", "check",
           "equal", "grant", "in_parallel", "quote", "table", "wait_until"]
