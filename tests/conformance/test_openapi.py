#!/usr/bin/python3
"""docs/openapi.yaml agrees with the server: every route of the gateway is in it, and every status that it documents is got by the
request beside it, in the documented form.

usage: test_openapi.py NARAD
"""

import json
import os
import re
import sys
import unittest

import yaml

from api import Api, quote
from cases import ADMIN, Case, Entry, Topic, wait_until
from node import PROFILES, HttpNode

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
METHODS = ("get", "post", "put", "patch", "delete")
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}


def document():
    with open(os.path.join(ROOT, "docs", "openapi.yaml"), encoding="utf-8") as file:
        return yaml.safe_load(file)


DOC = document()


def resolve(node):
    """What a {$ref: ...} stands for."""
    while isinstance(node, dict) and "$ref" in node:
        target = DOC
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        node = target
    return node


def problems(value, schema, where="body"):
    """How `value` is not as `schema` says; the words of JSON Schema that the document uses."""
    schema = resolve(schema)
    known = {"type", "properties", "required", "additionalProperties", "items", "enum", "const", "pattern", "allOf", "anyOf",
             "minimum", "maximum", "minItems", "maxItems", "description", "format", "default"}
    yield from (f"{where}: the test knows no {word}" for word in set(schema) - known)
    for part in schema.get("allOf", ()):
        yield from problems(value, part, where)
    if "anyOf" in schema and all(any(problems(value, part, where)) for part in schema["anyOf"]):
        yield f"{where}: {value!r:.200} is none of the alternatives"
    if "type" in schema and (not isinstance(value, TYPES[schema["type"]]) or
                             (schema["type"] == "integer" and isinstance(value, bool))):
        yield f"{where}: {value!r:.100} is no {schema['type']}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is not one of {schema['enum']}"
    if "const" in schema and value != schema["const"]:
        yield f"{where}: {value!r} is not {schema['const']!r}"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{where}: {value!r} does not match {schema['pattern']}"
    if "minimum" in schema and value < schema["minimum"]:
        yield f"{where}: {value} is below {schema['minimum']}"
    if isinstance(value, dict):
        yield from (f"{where}: no {name}" for name in schema.get("required", ()) if name not in value)
        for name, member in value.items():
            if name in schema.get("properties", {}):
                yield from problems(member, schema["properties"][name], f"{where}.{name}")
            elif schema.get("additionalProperties") is False:
                yield f"{where}: {name} is not documented"
    if isinstance(value, list) and "items" in schema:
        for index, member in enumerate(value):
            yield from problems(member, schema["items"], f"{where}[{index}]")


def operations():
    for path, item in DOC["paths"].items():
        for method in METHODS:
            if method in item:
                yield method.upper(), path, item[method]


class Openapi(unittest.TestCase):
    narad = None

    @classmethod
    def setUpClass(cls):
        cls.node = cls.enterClassContext(HttpNode(cls.narad, PROFILES["SEC"]))
        api = Api(cls.node.base_url, ADMIN)
        wait_until(lambda: api.get("/v1/users").status == 200, "the root account is there")
        cls.case = Case(Entry("openapi", "SEC", None, False), api, cls.node)
        stranger, attacked = cls.case.user(), cls.case.user()
        # Named here, never used with its password: its bucket is emptied again before each use.
        cls.attacked = attacked.credentials[0]
        cls.who = {"root": api, "nobody": api.anonymous(), "stranger": stranger}
        cls.guesses = 0

    @classmethod
    def someone(cls, who):
        if who != "attacked":
            return cls.who[who]
        while True:
            cls.guesses += 1
            guesser = cls.case.api.by(cls.attacked, f"guess {cls.guesses}")
            if guesser.get("/v1/topics").status == 429:
                return cls.case.api.by(cls.attacked, f"guess {cls.guesses} again")

    def fill(self, value, names):
        """The request with its {placeholders} replaced."""
        if isinstance(value, dict):
            return {k: self.fill(v, names) for k, v in value.items()}
        if isinstance(value, list):
            return [self.fill(v, names) for v in value]
        if isinstance(value, str):
            return re.sub(r"\{(fresh|topic|user|handle)\}", lambda m: names(m[1]), value)
        return value

    def names(self):
        """Placeholders of one request, each made when it is first needed."""
        made = {}

        def name(kind):
            if kind not in made:
                if kind == "fresh":
                    made[kind] = self.case.fresh("u")[-50:]
                elif kind == "topic":
                    topic = self.case.topic()
                    topic.put(b'{"id": 1}')
                    made[kind] = topic.name
                elif kind == "user":
                    made[kind] = self.case.user().credentials[0]
                else:
                    made[kind] = Topic(self.case.api, name("topic")).take()["receipt_handle"]
            return made[kind]

        return name

    def send(self, method, path, example):
        names = self.names()
        values = self.fill(example.get("path", {}), names)
        path = re.sub(r"\{(\w+)\}", lambda m: quote(values[m[1]]), path)
        query = self.fill(example.get("query", ""), names)
        body = None
        if "size" in example:
            body = b" " * example["size"]
        elif "text" in example:
            body = example["text"].encode()
        elif "body" in example:
            body = json.dumps(self.fill(example["body"], names)).encode()
        who = self.someone(example.get("as", "root"))
        return who.send(method, path + ("?" + query if query else ""), body, headers=example.get("headers", {}))

    def check_answer(self, answer, response):
        content = response.get("content", {})
        if not content:
            self.assertEqual(answer.body, b"", answer.request)
        else:
            self.assertIn(answer.header("Content-Type"), content, answer.request)
        for name, header in response.get("headers", {}).items():
            if "const" in header["schema"]:
                self.assertEqual(answer.header(name), header["schema"]["const"], answer.request)
        if "application/json" in content:
            found = list(problems(answer.json, content["application/json"]["schema"]))
            self.assertEqual(found, [], answer.request)

    def test_every_documented_status_is_got_by_its_request(self):
        reached, unreached = 0, set()
        for method, path, operation in operations():
            base = next(resolve(r)["x-example"] for r in operation["responses"].values() if "x-example" in resolve(r))
            for status, response in operation["responses"].items():
                response = resolve(response)
                with self.subTest(f"{method} {path} {status}"):
                    if "x-unreached" in response:
                        unreached.add(response["x-unreached"])
                        continue
                    answer = self.send(method, path, {**base, **response["x-example"]})
                    self.assertEqual(answer.status, int(status), f"{answer.request}: {answer.body[:200]!r}")
                    self.check_answer(answer, response)
                    reached += 1
        self.assertGreater(reached, 90)
        self.assertLess(len(unreached), 8)

    def test_every_route_of_the_gateway_is_documented_and_no_other(self):
        with open(os.path.join(ROOT, "gateway", "routes_table.c"), encoding="utf-8") as file:
            served = set(re.findall(r'\{"([A-Z]+)",\s*"(/[^"]*)"', file.read()))
        self.assertGreater(len(served), 10)
        documented = {(method, path) for method, path, _ in operations()}
        plain = {(m, re.sub(r"\{\w+\}", "{}", p)) for m, p in documented}
        self.assertEqual({(m, re.sub(r"\{\w+\}", "{}", p)) for m, p in served}, plain)

    def test_every_reference_resolves_and_every_part_is_used(self):
        used = set(re.findall(r'"\$ref": "(#[^"]+)"', json.dumps(DOC)))
        for reference in used:
            self.assertIsInstance(resolve({"$ref": reference}), dict, reference)
        for kind in ("schemas", "responses", "parameters"):
            for name in DOC["components"][kind]:
                self.assertIn(f"#/components/{kind}/{name}", used)

    def test_every_route_stands_in_the_text(self):
        with open(os.path.join(ROOT, "docs", "HTTP_API.md"), encoding="utf-8") as file:
            text = file.read()
        for method, path, operation in operations():
            self.assertIn(f"`{method} {path}`", text)
            for status in operation["responses"]:
                self.assertRegex(text, rf"\b{status}\b")


if __name__ == "__main__":
    Openapi.narad = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else os.environ["NARAD_BIN"]
    unittest.main()
