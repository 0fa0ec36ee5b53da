"""tidy/proofs: every test that tests/README.md names as the proof of a rule exists.

A proof is the name of a case, a word of some file below tests/, or a ctest name such as `unit/storage/wal`, whose
last part (without a seed, `_1`) is the name of a file or folder below tests/, or such a word. A rule without a proof says "none yet". Every
invariant I-n that a source cites has a row.
"""

import os
import re
import tree

ROW = re.compile(r"^\| ([PWFTCI][-0-9, ]+) \| (.*?) \|(.*)\|$")


def rows(text):
    for number, line in enumerate(text.splitlines(), 1):
        found = ROW.match(line)
        if found:
            yield number, found[1].strip(), found[3]


def cited_without_row(root, known):
    for path in tree.files(root, (".c", ".h", ".md", ".proto")):
        for number, line in enumerate(tree.read(root, path).splitlines(), 1):
            for rule in re.findall(r"(?<![\w-])I-\d+\b", line):
                if rule not in known:
                    yield f"{path}:{number}: {rule} has no row in tests/README.md"


def main():
    options = tree.arguments(__doc__).parse_args()
    words, places = set(), set()
    for path in tree.files(options.root, (".c", ".h", ".py", ".sh", "CMakeLists.txt")):
        if path.startswith("tests/"):
            words.update(re.findall(r"\w+_\w+", tree.read(options.root, path)))
            stem = os.path.splitext(path)[0]
            places.update(re.sub(r"^(test|sim)_", "", part) for part in stem.split("/"))
    problems, seen = [], 0
    table = list(rows(tree.read(options.root, "tests/README.md")))
    problems.extend(cited_without_row(options.root, {rule for _, rule, _ in table}))
    for number, rule, proof in table:
        seen += 1
        names = re.findall(r"`([^`]+)`", proof)
        if not names and proof.strip() != "none yet":
            problems.append(f"tests/README.md:{number}: {rule}: neither a proof nor 'none yet'")
        for name in names:
            place = re.sub(r"_\d$", "", name.split("/")[-1])
            known = name in words if "/" not in name else place in places or place in words
            if not known:
                problems.append(f"tests/README.md:{number}: {rule}: no test `{name}`")
    tree.finish(problems, seen)


main()
