"""C++ sources as text: without comments and literals, and the functions in them."""
import re

CONTROL = re.compile(r"^(if|for|while|switch|do|else|try|catch|return|case)\b")


def blank(text):
    """The source with comments and the contents of literals replaced by spaces."""
    token = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^(\s]{0,16})\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"'
        r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'", re.S)

    def erase(match):
        return re.sub(r"[^\n]", " ", match.group())

    return token.sub(erase, text)


def split_top_level(text):
    """The comma-separated parts of a parameter list."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        if c in "([{<":
            depth += 1
        elif c in ")]}" or (c == ">" and text[i - 1] != "-"):
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    return [p for p in (p.strip() for p in parts) if p and p != "void"]


def parameters(head):
    """The parameters of a function head, or none if it has no parameter list."""
    start = head.find("(")
    if head.startswith("operator()", start - 8):
        start = head.find("(", start + 1)
    depth = 0
    for i in range(start, len(head)):
        depth += {"(": 1, ")": -1}.get(head[i], 0)
        if depth == 0:
            return split_top_level(head[start + 1:i])
    return []


def functions(code):
    """Yields (head, first line, number of lines) of every function body, lambdas left out."""
    scopes = []  # per open brace: ("scope" | "function" | "other", head, first line)
    head_start, line, in_parentheses = 0, 1, 0
    for i, c in enumerate(code):
        if c == "\n":
            line += 1
            if code[i + 1:i + 2] == "#" or code[head_start:i].lstrip().startswith("#"):
                head_start = i + 1
        elif c in "()":
            in_parentheses += 1 if c == "(" else -1
        elif c == ";" and in_parentheses == 0:
            head_start = i + 1
        elif c == "{":
            text = code[head_start:i]
            head = text.strip()
            inside = all(kind == "scope" for kind, _, _ in scopes)
            first = line - text.lstrip().count("\n")
            scopes.append((classify(head) if inside and in_parentheses == 0 else "other", head, first))
            head_start = i + 1
        elif c == "}" and scopes:
            kind, head, first = scopes.pop()
            head_start = i + 1
            if kind == "function":
                yield head, first, line - first + 1


def classify(head):
    if re.match(r"(inline\s+)?namespace\b|extern\b\s*$", head):
        return "scope"
    if re.search(r"(^|\s)(class|struct|union)\s", head.split("(")[0]) and not head.endswith(")"):
        return "scope"
    if "(" not in head or CONTROL.match(head) or re.search(r"(^|[^=!<>])=\s*$", head):
        return "other"
    return "function"
