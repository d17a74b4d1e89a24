"""Durable buffers: what the tests of them share."""
import contextlib
import os
import re
import sqlite3
import subprocess

from durable_oracle import LOST, State, digest
from harness import DATA, PATIENCE_S, SMALL_SLOTS, Client, until

SYNC, BEHIND, NONE = ("?durability=" + w for w in ("sync", "behind", "none"))
INLINE = 64 * 1024  # as many bytes lie in the database; more, in a file
DATA_AT, BLOCK = 4096, 1 << 20  # of a file: where its bytes begin, and what each checksum is of
SIZES = (1000, INLINE + 1, (8 << 20) + 3)
OURS = re.compile(r"(\d+)\.(\d+)\.([0-9a-f]{8})\.safetensors")
# No room is kept on the disk for others, so that a test needs no gigabyte.
OPTIONS = (*SMALL_SLOTS, "--disk-reserve", "0")


def path_of(name, session="default"):
    return f"/v1/sessions/{session}/buffers/{name}"


def store(d, name, session="default"):
    return d.ask("POST", path_of(name, session) + "/store", {})


def load(d, name, session="default", headers=None):
    return d.ask("POST", path_of(name, session) + "/load", {}, headers)


def storage(d):
    return d.get("/v1/storage")


def ready(d):
    return until("the storage is ready", lambda: (lambda s: s if s["state"] == "ready" else None)(storage(d)))


def reads(d):
    """What has touched the disk for reading."""
    s = storage(d)
    return s["cold_reads"], s["loads"]


def memory(d, name, session="default"):
    """The bytes, once they are in memory."""
    load(d, name, session).expect(200)
    before = reads(d)
    body = d.data(name, session).expect(200).body
    assert reads(d) == before
    return body


# --- the folder -------------------------------------------------------------------------------------------------------


def folder_of(state):
    return os.path.join(state, "data")


def files(state):
    """{(buffer's id, generation, tag): path} of the files that the daemon would find."""
    found = {}
    top = folder_of(state)
    for below in os.listdir(top):
        if re.fullmatch("[0-9a-f]{2}", below):
            for base in os.listdir(os.path.join(top, below)):
                number, generation, tag = OURS.fullmatch(base).groups()
                found[int(number), int(generation), int(tag, 16)] = os.path.join(top, below, base)
    return found


def aside(state, where="orphans"):
    with contextlib.suppress(FileNotFoundError):
        return sorted(os.listdir(os.path.join(folder_of(state), where)))
    return []


def rows(state):
    """{(buffer's id, generation, tag): bytes} of the rows whose bytes are in a file, and those whose bytes they have
    themselves."""
    found = select(state, "select buffer_id, file_generation, file_tag, bytes, data is null from stored")
    return {r[:3]: r[3] for r in found if r[4]}, {r[:3]: r[3] for r in found if not r[4]}


def select(state, sql, *values, write=False):
    mode = "rw" if write else "ro"
    with contextlib.closing(sqlite3.connect(f"file:{state}/gpubufd.db?mode={mode}", uri=True,
                                            timeout=PATIENCE_S)) as db:
        found = db.execute(sql, values).fetchall()
        db.commit()
        return found


def about(state, number):
    return select(state, "select sessions.name, buffers.name, buffers.durability, generation, state from buffers"
                  " join sessions on session_id = sessions.id where buffers.id = ?", number)


def file_of(d, name, session="default"):
    """The path of the file that has the buffer's bytes."""
    r = d.ask("HEAD", DATA.format(session, name))
    number = int(r.headers["ETag"].strip('"').split(".")[0])
    (found,) = [p for (buffer, *_), p in files(d.state).items() if buffer == number]
    return found


def tidy(state):
    """Why the folder is not as the rows say; nothing, if it is."""
    named, has = rows(state)[0], files(state)
    wrong = [f"no row names {os.path.basename(has[k])}" for k in has.keys() - named.keys()]
    wrong += [f"the row {k} has no file: {about(state, k[0])}" for k in named.keys() - has.keys()]
    return wrong + [f"{p} has {os.path.getsize(p)} bytes" for k, p in has.items()
                    if k in named and os.path.getsize(p) != named[k] + DATA_AT]


def becomes_tidy(state):
    """Files go when their last reader has gone, a moment after the answer."""
    last = []

    def look():
        last[:] = tidy(state)
        return not last

    try:
        until("the folder is as the rows say", look, 15)
    except AssertionError:
        raise AssertionError(last) from None


# --- what there is ----------------------------------------------------------------------------------------------------


def found(d, oracle=None):
    """({session/name: state}, {session/name: bytes}) of all buffers. Tags go to the oracle."""
    states, contents = {}, {}
    c = Client(d.tcp)
    for s in c.ask("GET", "/v1/sessions?limit=1000").expect(200).json()["items"]:
        for b in c.ask("GET", f"/v1/sessions/{s['name']}/buffers?limit=1000").expect(200).json()["items"]:
            key = f"{s['name']}/{b['name']}"
            r = c.ask("GET", DATA.format(s["name"], b["name"]))
            if r.status != 200:
                r.problem(410, "content_lost")
            sha = digest(r.body) if r.status == 200 else LOST
            states[key] = State(sha, b["durability"], tuple(sorted(b["labels"].items())), b["sealed"])
            if sha:
                contents[key] = r.body
                if oracle:
                    oracle.tag(r.headers["ETag"], sha)
    c.close()
    return states, contents


# --- the end of a daemon ----------------------------------------------------------------------------------------------

SHIM = r"""
/* Syncs of files whose path has $SHIM_PATH in it: $SHIM_DO is "skip" (they are none), or "kill" or "fail" at the $SHIM_AT-th.
   With $SHIM_TELL they are told on stderr. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_int count;

/* 0: it is carried out; 1: it is said to be; -1: it fails. */
static int judged(int fd) {
    char link[64];
    char path[PATH_MAX] = "";
    const char *part = getenv("SHIM_PATH");

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof(path) - 1) < 0 || !strstr(path, part ? part : ""))
        return 0;
    if (getenv("SHIM_TELL"))
        dprintf(2, "synced %s\n", path);
    if (strcmp(getenv("SHIM_DO"), "skip") == 0)
        return 1;
    if (atomic_fetch_add(&count, 1) + 1 != atoi(getenv("SHIM_AT")))
        return 0;
    if (strcmp(getenv("SHIM_DO"), "kill") == 0)
        raise(SIGKILL);
    errno = EIO;
    return -1;
}

int fdatasync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    int r = judged(fd);
    return r > 0 ? 0 : r < 0 ? -1 : real(fd);
}

int fsync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    int r = judged(fd);
    return r > 0 ? 0 : r < 0 ? -1 : real(fd);
}
"""


def shim(folder):
    """The path of a library that comes between the daemon and its syncs."""
    made = os.path.join(folder, "shim.so")
    if not os.path.exists(made):
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", made, "-ldl"], input=SHIM.encode(), check=True,
                       timeout=PATIENCE_S, capture_output=True)
    return made


def skipping(folder, part=""):
    return {"LD_PRELOAD": shim(folder), "SHIM_DO": "skip", "SHIM_PATH": part}


def killing(folder, part, at):
    return {"LD_PRELOAD": shim(folder), "SHIM_DO": "kill", "SHIM_PATH": part, "SHIM_AT": str(at)}


def failing(folder, part, at):
    return {**killing(folder, part, at), "SHIM_DO": "fail"}

