#!/usr/bin/env python3
"""Fails where a document names a file, folder, page or heading of the project that is not there.

    references.py ROOT

Looks at three kinds of reference:
- what stands between backticks in a .md file and begins with a folder of the project: a path, a path without its ending
  (`graph/transform/scoring`), or a pattern (`tests/ops/cases/*.txt`, `sampler.{h,cc}`). A name such as <op> or NAME in a
  path stands for any;
- relative links of .md files, with the heading after #;
- the name of a page of docs/ in any source file.
Planted faults of each kind are to fail first."""
import pathlib
import re
import sys
import tempfile

FOLDERS = ["graph", "parallel", "text", "serialize", "runtime", "engine", "capi", "cli", "samples", "bindings", "packaging",
           "pkgconfig", "tests", "docs", "service"]
SOURCES = {".h", ".cc", ".cu", ".cuh", ".c", ".go", ".java", ".py", ".i", ".in", ".txt", ".sh", ".md", ".html"}
QUOTED = re.compile(r"`([^`\n]+)`")
PATH = re.compile(rf"^(?:{'|'.join(FOLDERS)})(?:/[\w.*<>{{}},+-]+)+/?$")
LINK = re.compile(r"\]\(([^()\s#:]*)(#[^()\s]*)?\)")
PAGE = re.compile(r"(?<![\w/.-])docs/[\w/-]+\.(?:md|svg)\b")


def spelled_out(path):
    """`a.{h,cc}` as two paths."""
    braces = re.search(r"\{([^{}]*)\}", path)
    if not braces:
        return [path]
    return [it for part in braces.group(1).split(",")
            for it in spelled_out(path[:braces.start()] + part + path[braces.end():])]


def is_there(root, path):
    pattern = re.sub(r"<[^<>]*>|\b[A-Z]{2,}\b", "*", path.rstrip("/.,:;"))
    return any(root.glob(pattern)) or any(root.glob(pattern + ".*"))


def without_code(page):
    """The page with its fenced blocks blank, line by line."""
    return re.sub(r"^```.*?^```", lambda block: "\n" * block.group().count("\n"), page, flags=re.S | re.M)


def anchors(page):
    """The anchors of a page's headings, as the hosts of repositories make them: lower case, spaces as dashes."""
    found = set()
    for heading in re.findall(r"^#+ +(.*)$", without_code(page.read_text()), re.M):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-")
        repeated = sum(1 for each in found if re.fullmatch(re.escape(anchor) + r"(-\d+)?", each))
        found.add(f"{anchor}-{repeated}" if anchor in found else anchor)
    return found


def lost_link(page, target, anchor):
    """What a link of `page` misses: the file, or its heading."""
    path = (page.parent / target) if target else page
    if not path.exists():
        return target
    if anchor and path.suffix == ".md" and anchor[1:] not in anchors(path):
        return target + anchor
    return None


def is_source(root, path):
    parts = path.relative_to(root).parts
    return path.suffix in SOURCES and path.is_file() and not any(part.startswith((".", "build")) for part in parts[:-1])


def sources(root):
    """Files of the project's folders and of its top, build folders left out."""
    within = [path for folder in FOLDERS for path in (root / folder).rglob("*")]
    return sorted(path for path in [*root.glob("*"), *within] if is_source(root, path))


def missing(root):
    found = []
    for page in sources(root):
        text = page.read_text(errors="replace")
        name = page.relative_to(root)
        for number, line in enumerate(text.split("\n"), 1):
            found += [f"{name}:{number}: {path} is not there" for path in PAGE.findall(line) if not (root / path).exists()]
        if page.suffix != ".md":
            continue
        for number, line in enumerate(text.split("\n"), 1):
            for quoted in QUOTED.findall(line):
                for path in spelled_out(quoted) if PATH.match(quoted) and not PAGE.match(quoted) else []:
                    if not is_there(root, path):
                        found.append(f"{name}:{number}: {path} is not there")
        for number, line in enumerate(without_code(text).split("\n"), 1):
            lost = [lost_link(page, *link) for link in LINK.findall(QUOTED.sub("", line))]
            found += [f"{name}:{number}: the link to {each} leads nowhere" for each in lost if each]
    return found


PLANTED = {
    "page.md": "`graph/ops/gone.cc` and `graph/{a,b}.h`, not `tessera.h`\n",
    "linked.md": "# A heading, with `code`\n[good](#a-heading-with-code) [other](page.md) [lost](gone.md) [no heading](#gone)\n",
    "cli/words.cc": "// docs" + "/guides/gone.md says how.\n",
}

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        for planted, text in PLANTED.items():
            (pathlib.Path(scratch) / planted).parent.mkdir(exist_ok=True)
            (pathlib.Path(scratch) / planted).write_text(text)
        if len(missing(pathlib.Path(scratch))) != 6:
            sys.exit("\n".join(["references self-test: planted faults were not found, or others were:"] + missing(pathlib.Path(scratch))))
    lost = missing(pathlib.Path(sys.argv[1]).resolve())
    print("\n".join(lost) if lost else "references: every file and heading that a document names is there")
    sys.exit(1 if lost else 0)
