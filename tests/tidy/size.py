"""tidy/size: a file, a function, a line that grew too long to be read in one go (docs/STYLE.md, "Size")."""

import re
import tree

LINES_MAX = {".c": 800, ".h": 250}
FUNCTION_LINES_MAX = 70
PARAMETERS_MAX = 6
COLUMNS_MAX = 100
# Functions that may have more parameters, and why.
MORE_PARAMETERS = {
    "nd_rpc_call_unary": 8, # the whole of a call; an options struct would live for one statement
    "nd_rpc_call_unary_with": 7, # the same
    "nd_rpc_stream_open": 7, # the same
    "nd_http_called": 8, # libmicrohttpd calls it
    "unused_callback": 8, # GnuTLS would call it
}


def functions(lines):
    """(first line, last line, signature) of each function body; the layout puts its braces in column 0."""
    start = None
    for number, line in enumerate(lines, 1):
        if line == "{":
            start = number
        elif line == "}" and start is not None:
            signature, at = "", start - 2
            while at >= 0 and lines[at].strip() and not re.match(r"[}#]", lines[at]):
                signature = lines[at] + " " + signature
                at -= 1
            yield start, number, signature
            start = None


def parameters(signature):
    """How many parameters the last top-level parenthesis of `signature` lists."""
    depth, count, inside = 0, 0, ""
    for char in signature:
        if char == "(":
            depth += 1
            if depth == 1:
                count, inside = 0, ""
                continue
        if char == ")":
            depth -= 1
        if depth >= 1:
            inside += char
            count += char == "," and depth == 1
    # The place for an error text is in every function near the system; it is no parameter to think about.
    told = bool(re.search(r"struct nd_errmsg \*\w+$", inside.strip()))
    return count + 1 - told if inside.strip() not in ("", "void") else 0


def check_file(path, text):
    lines = text.splitlines()
    limit = LINES_MAX[path[-2:]]
    if len(lines) > limit:
        yield f"{path}:{limit + 1}: {len(lines)} lines, at most {limit}: split it by subject"
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS_MAX:
            yield f"{path}:{number}: {len(line)} columns, at most {COLUMNS_MAX}"
    for first, last, signature in functions(tree.code_only(text).splitlines()):
        if last - first - 1 > FUNCTION_LINES_MAX:
            yield f"{path}:{first}: function of {last - first - 1} lines, at most {FUNCTION_LINES_MAX}"
        name = re.search(r"(\w+)\s*\(", signature)
        limit = MORE_PARAMETERS.get(name[1] if name else "", PARAMETERS_MAX)
        if parameters(signature) > limit:
            yield f"{path}:{first}: {parameters(signature)} parameters, at most {limit}"


def main():
    options = tree.arguments(__doc__).parse_args()
    paths = tree.files(options.root, tuple(LINES_MAX))
    problems = [p for path in paths for p in check_file(path, tree.read(options.root, path))]
    tree.finish(problems, len(paths))


main()
