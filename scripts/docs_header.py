"""Makes the page of a public C header for the site: its comments, and each declaration with its
comment."""

import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PUBLIC = re.compile(r"hccl/(?:\w+|acl/acl\w*|acl/error_codes/\w+)\.h")
DOC = re.compile(r"/\*\*?(.*?)\*/\n", re.S)
SECTION = re.compile(r"/\* ---- (.*?) ----(.*)\*/", re.S)
INDENTED = re.compile(r"\n((?:  +\S.*(?:\n|$))+)")
CODE = re.compile(r"(`[^`\n]+`|^``````.*?^``````$)", re.M | re.S)
NAMED_FILE = re.compile(r"(?<![\w/.-])((?:\w+/)*\w+\.(?:h|md|proto))\b")
# Matches what only the compiler needs.
GUARDS = re.compile(
    r"^#(?:ifndef|define) \w+_H_\n|^#include .*\n|^#endif(?: /\* \w+_H_ \*/)?\n", re.M
)
LINKAGE = re.compile(r'^#ifdef __cplusplus\n(?:extern "C" \{|\})\n#endif\n', re.M)
CHOICE = re.compile(r"^#ifdef __cplusplus\n(.*?)^#else\n(.*?)^#endif\n", re.M | re.S)
MACRO = re.compile(r"^#define (\w+)\(([\w, ]+)\) ?(.*)\n", re.M)
DECLARATION = re.compile(r"\n\n+|\n(?=/\*)|(?<=;)\n(?=(?!enum \{ \w+ = )\w)")
# The name of a declaration: of a type at its end, of a function before its parenthesis.
NAMES = (
    r"typedef [^;{]*\(\*(\w+)\)",
    r"typedef (?:[^;{]|\{.*\})*?(\w+);\s*(?:/\*.*\*/)?\s*\Z",
    r"(?:struct|union|enum) (\w+) \{",
    r"[^{]*?\b((?:Hccl|Hcom|acl)\w+)\(",
)


def fenced(text, language=""):
    return f"``````{language}\n{text.rstrip()}\n``````\n"


def linked(path, name):
    """Returns a link to a file that a comment of `path` names, if there is such a file."""
    here = os.path.dirname(path)
    for folder in (here, "hccl/acl", "hccl/acl/error_codes", ""):
        full = os.path.join(folder, name)
        if full != path and os.path.isfile(os.path.join(ROOT, full)):
            return f"[{name}]({os.path.relpath(full, here)})"
    return name


def comment_text(path, comment):
    """Returns the lines of a C comment as Markdown: lists and tables, which are indented, become
    code; what Markdown would read as markup stays as it is."""
    lines = [re.sub(r"^ ?\*? ?", "", line) for line in comment.strip().split("\n")]
    parts = CODE.split(INDENTED.sub(lambda m: "\n\n" + fenced(m[1]) + "\n", "\n".join(lines)))
    for i in range(0, len(parts), 2):
        links = NAMED_FILE.split(parts[i])
        for k, text in enumerate(links):
            plain = text.replace("<", "&lt;").replace(">", "&gt;")
            links[k] = linked(path, text) if k % 2 else re.sub(r"[_*]", r"\\\g<0>", plain)
        parts[i] = "".join(links)
    return "".join(parts).strip() + "\n"


def declarations(body):
    """Returns the body of a header as a C program reads it. A macro that ends with the header is
    expanded."""
    body = LINKAGE.sub("", body).replace('extern "C" {\n', "")
    macros = [m for m in MACRO.finditer(body) if m[3] and f"#undef {m[1]}\n" in body]
    body = CHOICE.sub(lambda m: "" if MACRO.search(m[1]) else m[2], body)
    for macro in reversed(macros):  # the last definition is C's, unless that is empty

        def expanded(m, names=macro[2].split(", "), text=macro[3]):
            values = dict(zip(names, m[1].split(", ")))
            return re.sub(r"\w+", lambda word: values.get(word[0], word[0]), text)

        body = body.replace(f"#undef {macro[1]}\n", "")
        body = re.sub(rf"\b{macro[1]}\(([^)]*)\)", expanded, body)
    return GUARDS.sub("", body)


def name_of(code):
    return next((m[1] for m in (re.match(form, code, re.S) for form in NAMES) if m), None)


def blocks(body):
    """Yields the declarations and comments of a header, each with its blank lines."""
    waiting = ""
    for part in DECLARATION.split(body):
        waiting += ("\n\n" if waiting else "") + part
        if waiting.count("{") == waiting.count("}") and waiting.strip():
            yield waiting.strip()
            waiting = ""
    if waiting.strip():
        yield waiting.strip()


def reference(path, text):
    """Returns the page of a public header: its comment, then each declaration with its comment."""
    head, body = text.split("*/\n", 1)
    page, last = [f"# {os.path.basename(path)}\n\n{comment_text(path, head[2:])}"], None
    for block in blocks(declarations(body)):
        section = SECTION.fullmatch(block)
        if section:
            page.append(f"## {section[1]}\n")
            page += [comment_text(path, section[2])] if section[2].strip(" *\n") else []
            last = None
            continue
        comment = DOC.match(block + "\n")
        code = block[comment.end():].strip() if comment else block
        name = name_of(code)
        if name and name != last:
            page.append(f"### {name}\n")
        last = name
        page += [comment_text(path, comment[1])] if comment else []
        page += [fenced(code, "c")] if code else []
    return "\n".join(page)
