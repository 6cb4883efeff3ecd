# SPDX-License-Identifier: MPL-2.0
"""What the source checks share: finding C files, blanking comments and strings, reporting, and a
self-test that shows a check can fail."""

import os
import re
import sys
import tempfile

FOLDERS = ("src", "sim", "bench", "tests")


def c_files(root, folders=FOLDERS):
    """All .c and .h files below the folders, as sorted paths relative to root."""
    found = []
    for folder in folders:
        for where, subfolders, names in os.walk(os.path.join(root, folder)):
            subfolders.sort()
            found += [os.path.relpath(os.path.join(where, name), root)
                      for name in names if name.endswith((".c", ".h"))]
    return sorted(found)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as f:
        return f.read()


TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def code_only(text):
    """The text with comments, strings and character constants blanked; lines keep their numbers."""
    return TOKEN.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def includes(text):
    """(line, is_system, name) of each #include."""
    return [(text.count("\n", 0, m.start(2)) + 1, m.group(1) == "<", m.group(2))
            for m in INCLUDE.finditer(text)]


def run(name, check, self_test_cases):
    """Command line of a check: [--self-test]. check(root) returns findings, 'path:line: text'.
    self_test_cases: (files {path: text}, expected part of the only finding or None for none).
    The self-test runs each time, before the tree is looked at: a check that cannot fail must not
    pass."""
    wrong = 0
    for files, expected in self_test_cases:
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                    f.write(text)
            findings = check(root)
        good = (not findings if expected is None
                else len(findings) == 1 and expected in findings[0])
        if not good:
            wrong += 1
            print(f"{name}: self-test: expected {expected!r}, got {findings!r}")
    if "--self-test" in sys.argv[1:] or wrong:
        print(f"{len(self_test_cases) - wrong} passed, {wrong} failed")
        sys.exit(1 if wrong else 0)
    findings = check(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    for finding in findings:
        print(finding)
    print(f"{name}: {len(findings)} findings" if findings else f"{name}: clean")
    sys.exit(1 if findings else 0)
