"""What a node promised, and whether it kept it. Every payload is its own name: "<producer>-<number> ...".

P1, P3  a confirmed produce is delivered until it is acked
P2      an acked record never comes back
        nothing is delivered that was not sent, and no record has two places

A message may lie in a client's hands for seconds before it is looked at, and its lease may end meanwhile and
another client settle it. So P2 is judged by what was asked when: a poll that began after the ack was answered
must not bring the record, and no second ack of it may be answered with OK.
"""

import threading
import time


class Ledger:
    def __init__(self):
        self.lock = threading.Lock()
        self.sent = {}           # name -> the node's clock before the call: may exist from then on
        self.ahead_ms = 0        # what that clock is ahead of ours
        self.confirmed = {}      # name -> (partition, offset): must exist
        self.acked = {}          # name -> when it was answered: must never be seen again
        self.ticks = 0           # orders what happens
        self.acks_open = set()   # ack sent, outcome unknown: either is right
        self.delivered = {}      # name -> (partition, offset)
        self.deliveries = 0
        self.problems = []

    def problem(self, text):
        self.problems.append(text)

    def now(self):
        with self.lock:
            self.ticks += 1
            return self.ticks

    def clock_ms(self):
        return time.time() * 1000 + self.ahead_ms

    def age(self, milliseconds):
        with self.lock:
            self.ahead_ms += milliseconds

    def is_old(self, name):
        """Retention (an hour) may have taken it."""
        return self.clock_ms() - self.sent[name] >= 3600 * 1000

    def sending(self, names):
        with self.lock:
            self.sent.update(dict.fromkeys(names, self.clock_ms()))

    def confirm(self, name, place):
        with self.lock:
            self.confirmed[name] = place
            seen = self.delivered.get(name)
            if seen is not None and seen != place:
                self.problem(f"{name} was confirmed at {place} and delivered from {seen}")

    def deliver(self, name, place, asked):
        """`asked`: now() before the poll that brought it; 0 when nobody can tell."""
        with self.lock:
            self.deliveries += 1
            if name not in self.sent:
                self.problem(f"{name} at {place} was never sent")
            if self.acked.get(name, asked) < asked:
                self.problem(f"{name} at {place} came back after its ack")
            if self.delivered.setdefault(name, place) != place:
                self.problem(f"{name} is at {place} and at {self.delivered[name]}")
            if self.confirmed.get(name, place) != place:
                self.problem(f"{name} is at {place}, confirmed at {self.confirmed[name]}")

    def acking(self, names):
        with self.lock:
            self.acks_open.update(names)

    def ack(self, name, place):
        with self.lock:
            self.acks_open.discard(name)
            if name in self.acked:
                self.problem(f"{name} at {place} was acked twice")
            self.ticks += 1
            self.acked[name] = self.ticks

    def says_enough(self):
        with self.lock:
            return len(self.confirmed) >= 100 and len(self.acked) > 0

    def missing(self):
        """Confirmed, never settled (or perhaps settled), and never seen."""
        with self.lock:
            return [n for n in self.confirmed if n not in self.delivered]

    def unsettled(self):
        with self.lock:
            return [n for n in self.confirmed if n not in self.acked and n not in self.acks_open]
