"""What a node promised, and whether it kept it. Every payload is its own name: "<producer>-<number> ...".

P1, P3  a confirmed produce is delivered until it is acked, or older than its topic's retention
P2      an acked record never comes back
        nothing is delivered that was not sent, and no record has two places
I-53    what is leased comes to nobody else before the lease is over

A message may lie in a client's hands for seconds before it is looked at, and its lease may end meanwhile and
another client settle it. So P2 is judged by what was asked when: a poll that began after the ack was answered
must not bring the record, and no second ack of it may be answered with OK. Leases are judged alike: by polls that
began after the answer that told of the lease, and ended before it can have ended, in one life of the node.
"""

import collections
import threading
import time

STALE = 9  # the code of a settle whose lease is over: it has settled nothing


class Ledger:
    def __init__(self, clock_ms):
        self.lock = threading.Lock()
        self.clock_ms = clock_ms  # the node's
        self.sent = {}           # name -> (topic, the node's clock), before the call: may exist
        self.confirmed = {}      # name -> (topic, partition, offset): must exist
        self.acked = {}          # name -> when it was answered: must never be seen again
        self.ticks = 0           # orders what happens
        self.acks_open = collections.Counter()  # ack sent, outcome unknown: either is right
        self.delivered = {}      # name -> (topic, partition, offset)
        self.leases = {}         # name -> (life of the node, told at tick, not over before)
        self.deliveries = self.nacked = self.extended = self.leases_judged = 0
        self.problems = []

    def problem(self, text):
        self.problems.append(text)

    def now(self):
        with self.lock:
            self.ticks += 1
            return self.ticks

    def sending(self, topic, names):
        with self.lock:
            when_ms = self.clock_ms()
            self.sent.update((name, (topic, when_ms)) for name in names)

    def confirm(self, name, place):
        with self.lock:
            self.confirmed[name] = place
            seen = self.delivered.get(name)
            if seen is not None and seen != place:
                self.problem(f"{name} was confirmed at {place} and delivered from {seen}")

    def deliver(self, name, place, asked, lease=None):
        """`asked`: now() before the poll that brought it; 0 when nobody can tell. `lease`: (life of the node during
        all of the poll, its beginning + the length of a lease); None when nobody can tell."""
        arrived = time.monotonic()
        with self.lock:
            self.ticks += 1
            self.deliveries += 1
            if name not in self.sent or self.sent[name][0] != place[0]:
                self.problem(f"{name} at {place} was never sent")
            if self.acked.get(name, asked) < asked:
                self.problem(f"{name} at {place} came back after its ack")
            if self.delivered.setdefault(name, place) != place:
                self.problem(f"{name} is at {place} and at {self.delivered[name]}")
            if self.confirmed.get(name, place) != place:
                self.problem(f"{name} is at {place}, confirmed at {self.confirmed[name]}")
            held = self.leases.pop(name, None)
            if held is not None and lease is not None and held[0] == lease[0] and held[1] < asked:
                self.leases_judged += 1
                if arrived < held[2]:
                    self.problem(f"{name} at {place} came again {held[2] - arrived:.3f} s before its lease was over")
            if lease is not None:
                self.leases[name] = (lease[0], self.ticks, lease[1])

    def extend(self, name, life, until):
        """An extend was answered with OK; `until`: when it was sent + the length of a lease."""
        with self.lock:
            self.extended += 1
            self.ticks += 1
            if name in self.leases and self.leases[name][0] == life:
                self.leases[name] = (life, self.ticks, until)

    def nacking(self, name):
        with self.lock:
            self.nacked += 1
            self.leases.pop(name, None)

    def acking(self, names):
        with self.lock:
            self.acks_open.update(names)

    def ack(self, name, place, code):
        """`code`: what the ack was answered with."""
        with self.lock:
            if code in (0, STALE):
                self.acks_open[name] -= 1
            if code != 0:
                return
            if name in self.acked:
                self.problem(f"{name} at {place} was acked twice")
            self.ticks += 1
            self.acked[name] = self.ticks

    def says_enough(self):
        with self.lock:
            return len(self.confirmed) >= 100 and self.acked and self.nacked and self.extended

    def missing(self):
        """Confirmed, never settled (or perhaps settled), and never seen."""
        with self.lock:
            return [n for n in self.confirmed if n not in self.delivered and self.acks_open[n] <= 0]

    def unsettled(self):
        with self.lock:
            return [n for n in self.confirmed if n not in self.acked and self.acks_open[n] <= 0]
