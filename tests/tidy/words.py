"""tidy/words: calls that the style bans, and words that hold on one machine only."""

import re
import tree

# call: what to use instead.
BANNED_CALLS = {
    r"strcpy|stpcpy|strcat|strncpy|strncat": "nd_buf, or memcpy with a checked size",
    r"sprintf|vsprintf": "snprintf",
    r"gets": "a reader that knows its limit",
    r"atoi|atol|atoll|atof": "strtoull with its errors checked",
    r"rand|srand|drand48": "env's random",
    r"strtok|alloca": "slices; the arena",
    r"sleep|usleep": "a condition to wait on",
}
BANNED_IN_TESTS = {r"nanosleep|clock_nanosleep": "a condition to wait on, or the test's clock"}

# Written so that this file does not match itself.
WORDS = {
    r"(?<![\w.])/(?:[w]ork|[h]ome/\w+|[r]oot|[f]arm|[t]mp/narad)/": "an absolute path of one machine",
    r"\b(?:deb\.[d]ebian|[p]ypi|files\.[p]ythonhosted|[c]rates|index\.[c]rates|registry\.[n]pmjs"
    r"|proxy\.[g]olang|sum\.[g]olang|repo1?\.[m]aven\.apache)\.(?:org|io)\b": "a registry's host",
    r"(?<!\w)[T]ODO(?!\(#\d+\))": "unfinished work without the issue that carries it",
}
SHELL_SLEEP = re.compile(r"(^|[;&|({]|\bdo\b|\bthen\b)\s*sleep\s+[\d.$]|\btime\.sleep\(")
TEXT = (".c", ".h", ".py", ".sh", ".md", ".txt", ".cmake", ".json", ".proto", ".yaml", ".yml", ".go",
        ".js", ".cc", ".in", ".conf", "Makefile", ".ci/run", ".mod", ".sum")


def calls_in(path, text):
    banned = dict(BANNED_CALLS)
    if path.startswith("tests/"):
        banned.update(BANNED_IN_TESTS)
    for number, line in enumerate(tree.code_only(text).splitlines(), 1):
        for names, instead in banned.items():
            # Not a member, not a longer name, not a definition's or a banned.h's own mention.
            found = re.search(rf"(?<![\w.>])({names})\s*\(", line)
            if found and not re.match(r"\s*#", line):
                yield f"{path}:{number}: {found[1]}() is banned; use {instead}"


def words_in(path, text):
    for number, line in enumerate(text.splitlines(), 1):
        for word, why in WORDS.items():
            found = re.search(word, line)
            if found:
                yield f"{path}:{number}: '{found[0]}': {why}"
        if path.startswith("tests/") and path.endswith((".py", ".sh")) and SHELL_SLEEP.search(line):
            yield f"{path}:{number}: a test sleeps; wait for the condition"


def main():
    options = tree.arguments(__doc__).parse_args()
    paths = tree.files(options.root, TEXT)
    problems = []
    for path in paths:
        text = tree.read(options.root, path)
        if path.endswith((".c", ".h")):
            problems.extend(calls_in(path, text))
        problems.extend(words_in(path, text))
    tree.finish(problems, len(paths))


main()
