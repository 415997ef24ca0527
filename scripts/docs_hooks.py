"""MkDocs calls these functions. Each page of the tree becomes a page of the site, at the same path,
so links between READMEs work in both. A link to a folder leads to the README there. A link to a
source file leads to a page that shows the file; for a public C header docs_header.py makes a
reference of the header's comments. The page of an example ends with its program."""

import logging
import os
import re
import subprocess
import urllib.parse

from docs_header import PUBLIC, fenced, reference
from mkdocs.structure.files import File, Files

LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)\s]*)?\))")
# Matches text directly above a list or table: GitHub recognises such a list, MkDocs does not.
BLOCK = re.compile(r"(^(?!-|\d+\.|\||\s|>|<|#).+\n)(?=- |\* |1\. |\| )", re.M)
ADDRESS = re.compile(r"""<\w[^>]*? (?:href|src)=["']?([^"'\s>#?]+)""")
FENCE = re.compile(r"(^(`{3,}).*?^\2$)", re.M | re.S)
LOG = logging.getLogger("mkdocs.hooks")
LANGUAGES = {".py": "python", ".h": "c", ".c": "c", ".cc": "cpp", ".json": "json", ".sh": "bash"}
SHOWN = ("*.md", "*.svg", "*.png", "docs/*.css", "docs/*.js")
# Long tables of an older method, whose many rows would fill the results of a search.
UNSEARCHED = ("benchmarks/results/barrier/",)
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


def source_page(path):
    """Returns a page that shows a file of the tree, or lists a folder."""
    full = os.path.join(ROOT, path)
    if os.path.isdir(full):
        names = sorted(name for name in os.listdir(full) if not name.startswith("."))
        folder = os.path.basename(path)
        return f"# {path}\n\n" + "".join(f"- [{name}]({folder}/{name})\n" for name in names)
    with open(full, encoding="utf-8") as file:
        text = file.read()
    if PUBLIC.fullmatch(path):
        return reference(path, text)
    return f"# {path}\n\n" + fenced(text, LANGUAGES.get(os.path.splitext(path)[1], "text"))


def is_source(page):
    """Returns whether source_page() made the page, except for the reference of a header."""
    return not (os.path.exists(os.path.join(ROOT, page)) or PUBLIC.fullmatch(page[:-3]))


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
    folder = os.path.join(ROOT, os.path.dirname(here))
    if here.startswith("examples/") and os.path.isfile(os.path.join(folder, "main.cc")):
        with open(os.path.join(folder, "main.cc"), encoding="utf-8") as file:
            markdown += "\n## main.cc\n" + fenced(file.read(), "cpp")
    if here.startswith("docs/") and not here.startswith("docs/reference-"):
        page.meta["search"] = {"boost": 2}
    elif here.startswith(UNSEARCHED) or is_source(here):
        page.meta["search"] = {"exclude": True}

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


def on_post_page(output, page, config):
    is_chinese = page.file.src_uri.startswith("docs/zh/") or ".zh-" in page.file.src_uri
    return output.replace('<html lang="en"', '<html lang="zh"', 1) if is_chinese else output


def on_post_build(config):
    """Warns of each address in the site, also in what the theme adds, that leads to no file."""
    for folder, _, names in os.walk(config.site_dir):
        for name in (name for name in names if name.endswith(".html") and name != "404.html"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                html = re.sub(r"<pre.*?</pre>", "", file.read(), flags=re.S)
            for address in set(ADDRESS.findall(html)):
                path = os.path.join(folder, urllib.parse.unquote(address))
                if not (re.match(r"[a-z]+:", address) or os.path.exists(path)):
                    page = os.path.relpath(os.path.join(folder, name), config.site_dir)
                    LOG.warning(f"{page}: there is no {address}")
