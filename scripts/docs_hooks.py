"""MkDocs calls these functions. Each page of the tree becomes a page of the site, at the same path,
so links between READMEs work in both. A link to a folder leads to the README there. A link to a
source file leads to a page that shows the file; for a public C header the page is a reference made
of the header's comments."""

import logging
import os
import re
import subprocess

from mkdocs.structure.files import File, Files

LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)\s]*)?\))")
DOC = re.compile(r"/\*\*?(.*?)\*/\n", re.S)
INDENTED = re.compile(r"\n((?:  +\S.*(?:\n|$))+)")
GUARDS = re.compile(r"^#(?!define HC).*\n|^#define \w+_H_\n|^extern \"C\" \{\n|^\}\n", re.M)
TYPE = re.compile(r"^\} (\w+);|^(?:typedef )?(?:struct|union|enum) (\w+)", re.M)
FUNCTION = re.compile(r"\b((?:Hccl|Hcom|acl)\w+)\(")
# Matches text directly above a list or table: GitHub recognises such a list, MkDocs does not.
BLOCK = re.compile(r"(^(?!-|\d+\.|\||\s|>|<|#).+\n)(?=- |\* |1\. |\| )", re.M)
FENCE = re.compile(r"(^(`{3,}).*?^\2$)", re.M | re.S)
LOG = logging.getLogger("mkdocs.hooks")
LANGUAGES = {".py": "python", ".h": "c", ".c": "c", ".cc": "cpp", ".json": "json", ".sh": "bash"}
SHOWN = ("*.md", "*.svg", "*.png", "docs/*.css", "docs/*.js")
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def target_of(page, link):
    """Returns the site's source for a link in a page: a page, a picture, or the page that
    source_page() makes."""
    path = os.path.normpath(os.path.join(os.path.dirname(page), link))
    if os.path.isfile(os.path.join(ROOT, path, "README.md")):
        return os.path.normpath(os.path.join(path, "README.md"))
    if not os.path.exists(os.path.join(ROOT, path)) or path.endswith((".md", ".svg", ".png")):
        return path
    return path + ".md"


def fenced(text, language=""):
    return f"``````{language}\n{text.rstrip()}\n``````\n"


def comment_text(comment):
    """Returns the lines of a C comment as text; lists and tables, which are indented, become
    code."""
    lines = [re.sub(r"^ ?\*? ?", "", line) for line in comment.strip().split("\n")]
    text = INDENTED.sub(lambda m: "\n\n" + fenced(m[1]) + "\n", "\n".join(lines))
    return re.sub(r"(?<=\w)\*(?=\W)|(?<=\W)\*(?=\w)", r"\\*", text)


def reference(path, text):
    """Returns the page of a public header: its comment, then each declaration with its comment."""
    head, body = text.split("*/\n", 1)
    page = [f"# {os.path.basename(path)}\n\n{comment_text(head[2:])}\n"]
    for block in re.split(r"\n\n+|\n(?=/\*)|(?<=;)\n(?=\w)", GUARDS.sub("", body)):
        section = re.fullmatch(r"/\* ---- (.*) ---- \*/", block.strip())
        comment = DOC.match(block.strip() + "\n")
        code = block.strip()[comment.end():].strip() if comment else block.strip()
        name = FUNCTION.search(code) or TYPE.search(code)
        if section:
            page.append(f"## {section[1]}\n")
            continue
        if name:
            page.append(f"### {name[1] or name[2]}\n")
        page += [comment_text(comment[1]) + "\n"] if comment else []
        page += [fenced(code, "c")] if code else []
    return "\n".join(page)


def source_page(path):
    """Returns a page that shows a file of the tree, or lists a folder."""
    full = os.path.join(ROOT, path)
    if os.path.isdir(full):
        names = sorted(name for name in os.listdir(full) if not name.startswith("."))
        folder = os.path.basename(path)
        return f"# {path}\n\n" + "".join(f"- [{name}]({folder}/{name})\n" for name in names)
    with open(full, encoding="utf-8") as file:
        text = file.read()
    if re.fullmatch(r"hccl/\w+\.h", path):
        return reference(path, text)
    return f"# {path}\n\n" + fenced(text, LANGUAGES.get(os.path.splitext(path)[1], "text"))


def on_files(files, config):
    command = ["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", *SHOWN]
    paths = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    paths = [path for path in paths if path[0] != "." and os.path.exists(os.path.join(ROOT, path))]
    pages = config.docs_dir + os.sep
    site = Files([file for file in files if not (file.abs_src_path or "").startswith(pages)])
    for path in paths:
        site.append(File(path, ROOT, config.site_dir, False))
    waiting = [path for path in paths if path.endswith(".md")]
    while waiting:
        page = waiting.pop()
        for link in LINK.finditer(site.src_uris[page].content_string):
            path = target_of(page, link[2])
            exists = path.endswith(".md") and os.path.exists(os.path.join(ROOT, path[:-3]))
            if exists and path not in site.src_uris:
                site.append(File.generated(config, path, content=source_page(path[:-3])))
                waiting.append(path)
    return site


def on_page_markdown(markdown, page, config, files):
    here = page.file.src_uri

    def there(link):
        path = target_of(here, link[2])
        if path not in files.src_uris:
            return link[0]  # MkDocs will complain
        return link[1] + os.path.relpath(path, os.path.dirname(here) or ".") + link[3]

    parts = FENCE.split(LINK.sub(there, markdown))
    for i in range(0, len(parts), 3):  # parts[i + 1] and parts[i + 2] are a block of code and its fence
        parts[i] = re.sub(r"\A\n(?=- |\| )", "\n\n", BLOCK.sub(r"\1\n", parts[i]))
    return "".join(part for i, part in enumerate(parts) if i % 3 != 2)


def on_page_content(html, page, config, files):
    lost = re.search(r"\n(?:- |\| |\* ).*", re.sub(r"<pre.*?</pre>", "", html, flags=re.S))
    if lost:
        LOG.warning(f"{page.file.src_uri}: a list or table has become text: {lost[0].strip()}")
    return html
