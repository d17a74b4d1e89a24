"""--tokens-file: tokens from a file beside those of the database."""
import contextlib
import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import time

import pytest

from harness import DATA, Daemon, binary, token, until
from test_tokens import listed, said

SECRET = "a-secret-of-the-file-{}"


def secret(i):
    return SECRET.format(i)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "tokens"


def write(file, text, mode=0o640):
    """As a whole: the daemon must not read one half."""
    new = file.with_name("new")
    new.write_text(text)
    os.chmod(new, mode)
    os.replace(new, file)


def begin(start, tmp_path, file):
    return start("--tokens-file", str(file), state=str(tmp_path / "state"))


LINES = f"""# name and secret
name=one secret={secret(1)}

name=two hash={hashlib.sha256(secret(2).encode()).hexdigest()} scope=write prefix=cam1-   # behind
name=three\tsecret={secret(3)} session=mine scope=write,map subject="CN=a \\\\\\"b\\\\\\",O=c" expires=2090-01-02T03:04:05Z
name=four subject=dns:four.example scope=verify
"""
OBJECTS = [{"name": "one", "secret": secret(1), "prefix": None},
           {"name": "two", "hash": hashlib.sha256(secret(2).encode()).hexdigest(), "scope": "write", "prefix": "cam1-"},
           {"name": "three", "secret": secret(3), "session": "mine", "scope": "write,map",
            "subject": 'CN=a \\"b\\",O=c', "expires": "2090-01-02T03:04:05Z"},
           {"name": "four", "subject": "dns:four.example", "scope": "verify"}]


@pytest.mark.parametrize("text", [LINES, LINES.replace("\n", "\r\n"), json.dumps(OBJECTS),
                                  json.dumps(OBJECTS, indent=1), "\n".join(json.dumps(o) for o in OBJECTS)],
                         ids=["lines", "crlf", "list", "indented", "objects"])
def test_all_forms(start, tmp_path, file, text):
    write(file, text)
    d = begin(start, tmp_path, file)
    d.ask("GET", "/v1").problem(401, "unauthenticated")
    d.ask("GET", "/v1", token=secret(1)).expect(200)
    d.ask("PUT", DATA.format("default", "cam1-x"), b"1", token=secret(1)).problem(403, "forbidden")
    d.ask("PUT", DATA.format("default", "cam1-x"), b"1", token=secret(2)).expect(201)
    d.ask("PUT", DATA.format("default", "x"), b"1", token=secret(2)).problem(403, "forbidden")
    d.ask("PUT", DATA.format("default", "x"), b"1", token=secret(3)).problem(403, "forbidden")
    until("the uses are known", lambda: listed(d.state, "--tokens-file", str(file))["one"]["last_used_at"])
    tokens = listed(d.state, "--tokens-file", str(file))
    assert list(tokens) == ["one", "two", "three", "four"] and {t["source"] for t in tokens.values()} == {"file"}
    assert tokens["three"] == {**tokens["three"], "scopes": ["write", "map"], "session": "mine",
                               "subject": 'CN=a \\"b\\",O=c', "expires_at": "2090-01-02T03:04:05.000Z", "prefix": None}
    assert (tokens["two"]["prefix"] == "cam1-" and tokens["four"]["scopes"] == ["verify"] and tokens["one"]["scopes"]
            == ["read"])
    assert not any(secret(i) in d.log() for i in (1, 2, 3))


def test_it_is_read_again(start, tmp_path, file):
    write(file, f"name=one secret={secret(1)} scope=write\n")
    d = begin(start, tmp_path, file)
    d.ask("GET", "/v1", token=secret(1)).expect(200)
    write(file, f"name=one secret={secret(2)}\n")
    until("the other is in force", lambda: d.ask("GET", "/v1", token=secret(2)).status == 200)
    d.ask("GET", "/v1", token=secret(1)).problem(401, "unauthenticated")
    os.remove(file)
    until("it is said", lambda: "cannot be opened" in d.log())
    d.ask("GET", "/v1", token=secret(2)).expect(200)
    write(file, "")
    until("none is in force", lambda: d.ask("GET", "/v1", token=secret(2)).status == 401)
    d.ask("GET", "/v1").problem(401, "unauthenticated")  # a file without tokens opens nothing
    database = token(d.state, "add", "database")
    until("the database's is taken", lambda: d.ask("GET", "/v1", token=database).status == 200)


def test_as_many_as_a_file_may_have(start, tmp_path, file):
    """They are compared with each other and with those before in less time than the daemon may take for its other
    work."""
    def text(n):
        return "".join(f"name=t{i} secret={secret(i)} subject=dns:t{i}\n" for i in range(n))

    write(file, text(10000))
    d = begin(start, tmp_path, file)
    d.ask("GET", "/v1", token=secret(9999)).expect(200)
    write(file, text(9999))
    until("one is revoked", lambda: d.ask("GET", "/v1", token=secret(9999)).status == 401)
    write(file, text(10001))
    until("it is said", lambda: f"{file}:10001: this token is one more than the 10000 that a file may have" in d.log())
    d.ask("GET", "/v1", token=secret(9998)).expect(200)


def test_a_file_that_is_written_in_place_is_read_at_sighup(start, tmp_path, file):
    write(file, f"name=one secret={secret(1)}\n")
    d = begin(start, tmp_path, file)
    before = d.log().count(" in force")
    d.process.send_signal(signal.SIGHUP)
    until("it was read", lambda: d.log().count(" in force") > before)
    d.ask("GET", "/v1", token=secret(1)).expect(200)


def test_a_file_that_is_being_written_is_not_read(start, tmp_path, file):
    """Emptied and written line by line, in place: no token is revoked meanwhile."""
    write(file, f"name=one secret={secret(1)}\n")
    d = begin(start, tmp_path, file)
    with open(file, "w") as out:
        for i in range(12):
            d.ask("GET", "/v1", token=secret(1)).expect(200)
            time.sleep(0.15)
            out.write(f"# {i}\n")
            out.flush()
        out.write(f"name=one secret={secret(1)}\nname=two secret={secret(2)}\n")
    until("the whole is in force", lambda: d.ask("GET", "/v1", token=secret(2)).status == 200)
    d.ask("GET", "/v1", token=secret(1)).expect(200)
    assert "0 in force" not in d.log()


def test_changes_are_in_the_audit(start, tmp_path, file):
    write(file, "".join(f"name=t{i} secret={secret(i)} scope=admin\n" for i in range(3)))
    d = begin(start, tmp_path, file)
    write(file, f"name=t0 secret={secret(0)} scope=admin\nname=t1 secret={secret(1)} scope=read\nname=t3 "
          f"secret={secret(3)} session=s\n")
    until("it was read", lambda: d.ask("GET", "/v1", token=secret(3)).status != 401)

    def changes():
        return [(r["event"], r["object"], r["address"], r.get("session"))
                for r in d.ask("GET", "/v1/audit", token=secret(0)).json()["items"] if r["event"].startswith("token.")]

    until("they are recorded", lambda: sorted(changes()) == [
        ("token.added", "t3", "daemon", "s"), ("token.changed", "t1", "daemon", None),
        ("token.revoked", "t2", "daemon", None)])
    write(file, "name=\n")
    until("it is said", lambda: f"{file}:1" in d.log())
    d.process.send_signal(signal.SIGHUP)
    assert len(changes()) == 3


def test_a_change_that_cannot_be_loaded_stays_due(start, tmp_path, file):
    """Of the database: a record that cannot be understood is no reason to forget that another token was revoked."""
    state = tmp_path / "state"
    admin, other = token(str(state), "add", "admin", "--scope", "admin"), token(str(state), "add", "other")
    d = start(state=str(state))
    d.ask("GET", "/v1", token=other).expect(200)
    with contextlib.closing(sqlite3.connect(state / "gpubufd.db", timeout=30)) as db:
        db.execute("UPDATE tokens SET scope = 'broken' WHERE name = 'admin'")
        db.execute("DELETE FROM tokens WHERE name = 'other'")
        db.execute("UPDATE token_epoch SET value = value + 1")
        db.commit()
        until("it is said", lambda: "cannot be understood" in d.log())
        d.ask("GET", "/v1", token=other).expect(200)
        db.execute("UPDATE tokens SET scope = 'admin' WHERE name = 'admin'")  # the epoch stays
        db.commit()
    until("the other is revoked", lambda: d.ask("GET", "/v1", token=other).status == 401)
    d.ask("GET", "/v1", token=admin).expect(200)
    assert d.log().count("cannot be understood") == 1  # not each time that it was tried


def test_an_error_leaves_what_is_known(start, tmp_path, file):
    write(file, f"name=one secret={secret(1)}\n")
    d = begin(start, tmp_path, file)
    write(file, f"name=two secret={secret(2)}\nname=three\n")
    until("it is said", lambda: f"{file}:2: give secret, hash or subject" in d.log())
    d.ask("GET", "/v1", token=secret(1)).expect(200)
    d.ask("GET", "/v1", token=secret(2)).problem(401, "unauthenticated")
    assert d.log().count(f"{file}:2") == 1 and secret(2) not in d.log()
    write(file, f"name=one secret={secret(1)}\n", 0o644)
    until("it is said", lambda: "has mode 0644" in d.log() and "chmod 0640" in d.log())


GOOD = f"name=a secret={secret(1)} "


@pytest.mark.parametrize("text, line, what", [
    ("nonsense", 1, "word 1 is not of the form key=value"),
    (GOOD + secret(7), 1, "word 3 is not of the form key=value"),
    (GOOD + f"{secret(7)}=x", 1, "permitted keys"),
    (GOOD + "scop=read", 1, 'no key "scop"'),
    (GOOD + "name=b", 1, "name is given twice"),
    (GOOD + "scope=reed", 1, "scope must be verify, read, write"),
    (GOOD + 'subject="CN=a', 1, "a quotation does not end"),
    (GOOD + 'subject="CN=a"b', 1, "a quotation does not end"),
    (GOOD + "expires=30d", 1, "expires must be a time"),
    (GOOD + "prefix=a/b", 1, "prefix"),
    (GOOD + "session=-", 1, "session name"),
    # of a template's variable that is not set
    *[(GOOD + f"{key}={empty}", 1, what) for empty in ("", '""') for key, what in (
        ("session", "session name"), ("prefix", "prefix"), ("scope", "scope must be"), ("subject", "subject"),
        ("expires", "expires must"))],
    ('{"name":"a","subject":"dns:x","prefix":""}', 1, "prefix"),
    (GOOD + "expires=1970-01-01T00:00:00Z", 1, "expires must be a time after 1970"),
    ("".join(f"name=a{i} subject=dns:x{i}\n" for i in range(10001)), 10001, "one more than the 10000"),
    *[(f"name=b {kind}", 1, flaw) for kind, flaw in (
        ("subject=ci", "it is a subject such as CN=ci"), ("subject=/CN=ci", "a comma between them and no /"),
        ("subject=CN=", "no value"), ("subject=dns:", "a host name"), ("subject=ip:300.1.1.1", "an address"),
        ("subject=foo:bar", "begins with dns:"), ("subject=cn=lower", "in these letters"),
        ('subject="CN=a,  O=b"', "no blank"))],
    (GOOD + "hash=" + "0" * 64, 1, "not both"),
    ("# \n\nname=a hash=0", 3, "64 lower-case"),
    ("name=a secret=short", 1, "at least 16 bytes"),
    ("secret=" + secret(1), 1, "no name"),
    (GOOD + "\n" + GOOD, 2, "line 1 has a token of the same name"),
    (GOOD + f"\nname=b secret={secret(1)}", 2, "line 1 has a token of the same secret"),
    ("name=a subject=dns:x\nname=b subject=dns:x", 2, "line 1 has a token of the same subject"),
    ("[", 1, "the list has no end"),
    ('[{"name":"a","secret":"' + secret(1) + '"}\n{"name":"b"}]', 2, "a comma"),
    ('[{"name":"a","secret":"' + secret(1) + '"},\n]', 2, "an object must follow"),
    ('[1]', 1, "must be an object"),
    ('[] x', 1, "nothing may follow"),
    ('{"name":"a",\n"secret":' + secret(1) + '}', 2, "not JSON"),
    ('{"name":"a"}\n\n{"name":"b","secret":1}', 1, "give secret"),
    ('[{"name":"a","secret":"' + secret(1) + '"},\n\n{"name":"b","secret":1}]', 3, "secret must be a string"),
    ('{"name":"a","name":"b"}', 1, "a key twice")])
def test_errors_name_the_line(tmp_path, file, text, line, what):
    """By the command, which reads the file as the daemon does, and by the daemon's refusal to start."""
    token(tmp_path / "state", "add", "x")
    write(file, text)
    out = said(tmp_path / "state", "list", "--tokens-file", str(file))
    assert out.returncode == 64 and f"{file}:{line}: " in out.stderr and what in out.stderr, out
    assert not any(secret(i) in out.stderr for i in (1, 7))


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o604, 0o700])
def test_modes_that_are_too_wide(backend, tmp_path, file, mode):
    write(file, f"name=one secret={secret(1)}\n", mode)
    d = Daemon(backend, "--tokens-file", str(file), wait=False)
    assert d.process.wait(60) == 78
    log = d.log()
    d.clean()
    assert f"has mode {mode:04o}" in log and "0640" in log and secret(1) not in log


@pytest.mark.parametrize("what", ["absent", "folder", "binary", "large"])
def test_files_that_are_none(tmp_path, file, what):
    token(tmp_path / "state", "add", "x")
    if what == "folder":
        file.mkdir(mode=0o700)
    elif what == "binary":
        write(file, "name=a\0")
    elif what == "large":
        write(file, "#" * (4 << 20) + "#")
    out = subprocess.run([binary(), "token", "list", "--state-dir", tmp_path / "state", "--tokens-file", file],
                         capture_output=True, text=True, timeout=90)
    assert out.returncode == 64 and str(file) in out.stderr and out.stdout == "", out


# --- beside the database ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what, line", [
    ("name", "name=ci secret={0}"), ("subject", 'name=other subject="CN=ci"'), ("secret", "name=other secret={1}")])
def test_the_database_wins(start, tmp_path, file, what, line):
    """At the start and while it runs; the other lines of the file are in force all the same."""
    state = tmp_path / "state"
    ours = token(state, "add", "ci", "--subject", "CN=ci", "--scope", "write")
    good = f"name=good secret={secret(2)}\n"
    write(file, good + line.format(secret(1), ours) + "\n")
    said_so = (f'{file}:2: token "{"ci" if what == "name" else "other"}" is not in force: token "ci" of the database '
               f'has the same {what}')
    d = begin(start, tmp_path, file)
    assert said_so in d.log()
    d.ask("PUT", DATA.format("default", "x"), b"1", token=ours).expect(201)
    d.ask("GET", "/v1", token=secret(2)).expect(200)
    d.ask("GET", "/v1", token=secret(1)).problem(401, "unauthenticated")
    shown = json.loads(token(state, "list", "--json", "--tokens-file", file))["tokens"]
    assert ([t["in_force"] for t in shown] == [True, False, True] and f"the database has its {what}"
            in token(state, "list", "--tokens-file", file))
    out = said(state, "revoke", "ci", "--tokens-file", file)
    assert out.returncode == 0 and "token ci is revoked" in out.stderr and (f"of {file}, line 2, is in force now"
                                                                            in out.stderr) == (what == "name")
    if what == "name":
        until("the file's is in force", lambda: d.ask("GET", "/v1", token=secret(1)).status == 200)
        token(state, "add", "ci")  # without the file's name, the command cannot know
        until("the database's wins", lambda: d.ask("GET", "/v1", token=secret(1)).status == 401)
        assert d.log().count(said_so) >= 2


def test_the_file_takes_no_certificate_from_the_database(start, tmp_path, file):
    state = tmp_path / "state"
    write(file, 'name=filecert subject="CN=ci" scope=verify\n')
    for args, what in ((("ci", "--subject", "CN=ci"), "subject"), (("filecert",), "name")):
        out = said(state, "add", *args, "--tokens-file", str(file))
        assert (out.returncode == 64 and f"{file}:1 has a token of the same {what}: remove that line first"
                in out.stderr), out
    out = said(state, "add", "free", "--tokens-file", str(file))
    assert out.returncode == 0, out
    for words in (("revoke",), ("rotate",)):
        out = said(state, *words, "filecert", "--tokens-file", str(file))
        assert out.returncode == 70 and f'token "filecert" is in {file}, line 1: ' in out.stderr, out
    assert "remove that line" in said(state, "revoke", "filecert", "--tokens-file", str(file)).stderr
    assert "there is no token named" in said(state, "revoke", "nosuch", "--tokens-file", str(file)).stderr


def test_those_that_have_expired_are_not_counted(start, tmp_path, file):
    write(file, f"name=old secret={secret(1)} expires=2020-01-02T03:04:05Z\nname=new secret={secret(2)}\n")
    d = begin(start, tmp_path, file)
    assert "1 in force; expired: old" in d.log()
    token(d.state, "add", "short", "--expires", "2s")
    until("both are said", lambda: "1 in force; expired: short, old" in d.log())
