"""What the policy tests share: the tree's files, and a report that counts."""
import os
import re
import sys

TOP = os.path.realpath(os.environ.get('srcdir') or os.path.join(os.path.dirname(__file__), '..', '..'))
BUILD = os.path.realpath(os.environ.get('builddir') or '.')
SKIPPED = 77


class Report:
    def __init__(self):
        self.passed = 0
        self.failed = 0

    def check(self, good, text):
        """Counts one check; prints the text when it is bad."""
        if good:
            self.passed += 1
        else:
            self.failed += 1
            print('wrong:', text)

    def end(self):
        if self.passed + self.failed == 0:
            print('nothing was checked')
            self.failed = 1
        print(f'{self.passed + self.failed} places looked at')
        # One rule is one test, however many places keep it.
        print(f'{0 if self.failed else 1} passed, {self.failed} failed')
        sys.exit(1 if self.failed else 0)


def skip(why):
    print('SKIP', why)
    sys.exit(SKIPPED)


def files(pattern, *folders):
    """Paths below the folders, relative to the top, that match the pattern."""
    found = []
    for folder in folders:
        for base, dirs, names in os.walk(os.path.join(TOP, folder)):
            dirs[:] = sorted(d for d in dirs if not d.startswith(('.', '_', 'build')) and d != '__pycache__')
            for name in sorted(names):
                path = os.path.relpath(os.path.join(base, name), TOP)
                if re.search(pattern, path):
                    found.append(path)
    return found


def python_files():
    """Python of ours, by a file's name or its first line."""
    found = []
    for path in files('', 'doc', 'etc', 'src', 'tests'):
        if not path.startswith('tests/fuzz/corpus/'):
            with open(os.path.join(TOP, path), 'rb') as file:
                if path.endswith('.py') or re.match(rb'#! ?\S*/(?:env )?python3?\b', file.readline(100)):
                    found.append(path)
    return found


def read(path):
    with open(os.path.join(TOP, path), encoding='utf-8') as file:
        return file.read()


def c_text(literals):
    """The text of adjacent C string literals without escapes but for quotes."""
    return ''.join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals)).replace('\\"', '"')


def cli_options():
    """Of each option of gpubuf: its type, its field, its letter or 0, and the commands and words ("pools.add") that
    take it."""
    text = read('src/cli/options.def')
    found = {name: (kind, field, letter, c_text(takers).split()) for kind, field, name, letter, takers in re.findall(
        r'^GB_CLI_(?:OPTION|SETTING)\((\w+), (\w+), "([^"]+)", (\'.\'|0), "[^"]*",\s*"[^"]*",\s*((?:"[^"]*"\s*)+),',
        text, re.M)}
    return found if len(found) == len(re.findall(r'^GB_CLI_\w+\(', text, re.M)) > 30 else {}
