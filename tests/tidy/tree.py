"""The files that the checks look at, and how they report. Shared by every check in this folder."""

import argparse
import os
import subprocess
import sys


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def files(root, suffixes=("",)):
    """Paths below root, relative to it: what git tracks or would add; without git, all but build/."""
    try:
        # Only when root is itself the top of a work tree: a planted tree may lie inside another one.
        inside = os.path.exists(os.path.join(root, ".git"))
        command = ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, capture_output=True, check=True).stdout if inside else None
    except (OSError, subprocess.CalledProcessError):
        listed = None
    if listed is not None:
        paths = {os.fsdecode(path) for path in listed.split(b"\0") if path}
    else:
        paths = set()
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if name not in (".git", "build")]
            paths.update(os.path.relpath(os.path.join(folder, name), root) for name in names)
    return sorted(
        path
        for path in paths
        if path.endswith(tuple(suffixes)) and os.path.isfile(os.path.join(root, path))
    )


def code_only(text):
    """C text with comments and the insides of literals blanked out; lines and columns stay."""
    out = []
    i = 0
    while i < len(text):
        two = text[i : i + 2]
        if two in ("//", "/*"):
            end = text.find("\n" if two == "//" else "*/", i + 2)
            end = len(text) if end < 0 else end + (0 if two == "//" else 2)
            out.append("".join(c if c == "\n" else " " for c in text[i:end]))
            i = end
        elif text[i] in "\"'":
            quote, start = text[i], i
            i += 1
            while i < len(text) and text[i] != quote and text[i] != "\n":
                i += 2 if text[i] == "\\" else 1
            i = min(i + 1, len(text))
            out.append(quote + " " * (i - start - 2) + quote if i - start >= 2 else text[start:i])
        else:
            out.append(text[i])
            i += 1
    return "".join(out)


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(here)))
    return parser


def finish(problems, seen):
    """Print `problems`, one a line as file:line: text, and exit: 1 when there are any or nothing was seen."""
    for problem in problems:
        print(problem)
    if not seen:
        print("nothing was looked at")
    print(f"{seen} files, {len(problems)} problems")
    sys.exit(1 if problems or not seen else 0)
