/* The process that keeps. It has one thread, and waits for its listener, for the daemon, or for the end of its time. A
 * message that it does not know ends the connection, not the process. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "keeper/keeper.h"
#include "keeper/wire.h"

struct item {
    uint64_t id;
    int fd;
};

struct keeper {
    int daemon; /* -1: none */
    bool greeted;
    uint64_t keep_for_ms;
    uint64_t ends_ns;   /* without a daemon */
    struct item *items; /* by rising id */
    size_t count;
    size_t room;
};

/* --- what is kept ------------------------------------------------------------------------------------------------- */

/* Where the number is, or would be. Numbers rise, so the search begins at the end. */
static size_t place_of(const struct keeper *k, uint64_t id) {
    size_t from = 0;
    size_t to = k->count;

    if (to == 0 || k->items[to - 1].id < id)
        return to;
    while (from < to) {
        size_t middle = from + (to - from) / 2;

        if (k->items[middle].id < id)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

static bool has_at(const struct keeper *k, size_t at, uint64_t id) {
    return at < k->count && k->items[at].id == id;
}

static bool make_room(struct keeper *k) {
    size_t room = k->room > 0 ? 2 * k->room : 64;
    struct item *items;

    if (k->count < k->room)
        return true;
    items = realloc(k->items, room * sizeof(*items));
    if (!items)
        return false;
    k->items = items;
    k->room = room;
    return true;
}

/* Takes ownership of fd; -1: none came. */
static bool put(struct keeper *k, uint64_t id, int fd) {
    size_t at = place_of(k, id);

    if (fd < 0)
        return false;
    if (id == 0 || !make_room(k)) {
        close(fd);
        return false;
    }
    if (has_at(k, at, id)) {
        close(k->items[at].fd);
        k->items[at].fd = fd;
        return true;
    }
    memmove(&k->items[at + 1], &k->items[at], (k->count - at) * sizeof(*k->items));
    k->items[at] = (struct item){id, fd};
    k->count++;
    return true;
}

static void drop(struct keeper *k, uint64_t id) {
    size_t at = place_of(k, id);

    if (!has_at(k, at, id))
        return;
    close(k->items[at].fd);
    k->count--;
    memmove(&k->items[at], &k->items[at + 1], (k->count - at) * sizeof(*k->items));
}

/* --- the daemon --------------------------------------------------------------------------------------------------- */

static void part(struct keeper *k) {
    close(k->daemon);
    k->daemon = -1;
    k->greeted = false;
    k->ends_ns = gb_clock_ns() + k->keep_for_ms * GB_NS_PER_MS;
}

static bool tell(const struct keeper *k, enum gb_keeper_op op, uint64_t id, int fd) {
    return gb_keeper_send(k->daemon, op, id, fd, 0) == 0;
}

/* It waits for a daemon that does not read: it has no other to serve. */
static bool list(const struct keeper *k) {
    size_t i;

    for (i = 0; i < k->count; i++) {
        if (!tell(k, GB_KEEPER_PUT, k->items[i].id, k->items[i].fd))
            return false;
    }
    return tell(k, GB_KEEPER_END, k->count, -1);
}

static bool greet(struct keeper *k, uint64_t keep_for_s) {
    k->greeted = true;
    k->keep_for_ms = keep_for_s * 1000;
    return tell(k, GB_KEEPER_HELLO, k->count, -1);
}

/* Returns false if the connection is to end. */
static bool obey(struct keeper *k, const struct gb_keeper_message *m, int fd) {
    if (!k->greeted && m->op != GB_KEEPER_HELLO)
        return false;
    switch (m->op) {
    case GB_KEEPER_HELLO:
        return fd < 0 && greet(k, m->id);
    case GB_KEEPER_PUT:
        return put(k, m->id, fd) || tell(k, GB_KEEPER_REFUSED, m->id, -1);
    case GB_KEEPER_DROP:
        drop(k, m->id);
        return true;
    case GB_KEEPER_LIST:
        return list(k);
    case GB_KEEPER_SYNC:
        return tell(k, GB_KEEPER_END, k->count, -1);
    default:
        return false;
    }
}

/* One message. Returns false when the daemon has gone, or has said what it may not. */
static bool serve(struct keeper *k, int flags) {
    struct gb_keeper_message m;
    bool cut;
    int fd;
    int r = gb_keeper_receive(k->daemon, &m, &fd, &cut, flags);
    bool goes_on;

    if (r <= 0)
        return r < 0 && errno == EAGAIN;
    goes_on = obey(k, &m, fd);
    if (fd >= 0 && m.op != GB_KEEPER_PUT)
        close(fd);
    return goes_on;
}

/* --- daemons that come -------------------------------------------------------------------------------------------- */

static bool is_ours(int socket) {
    struct ucred who;
    socklen_t n = sizeof(who);

    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 && (who.uid == geteuid() || who.uid == 0);
}

/* A daemon that was killed may have left messages: they come first. Returns true if it is gone. */
static bool has_gone(struct keeper *k) {
    struct pollfd p = {.fd = k->daemon, .events = POLLIN};

    while (k->daemon >= 0 && poll(&p, 1, 0) > 0) {
        if (!serve(k, MSG_DONTWAIT))
            part(k);
    }
    return k->daemon < 0;
}

#define BUSY_MS 200

/* What the other one says is read first: a close with something unread would take the answer back. */
static void turn_away(int socket) {
    struct pollfd p = {.fd = socket, .events = POLLIN};
    struct gb_keeper_message m;
    bool cut;
    int fd;

    if (poll(&p, 1, BUSY_MS) > 0 && gb_keeper_receive(socket, &m, &fd, &cut, MSG_DONTWAIT) > 0 && fd >= 0)
        close(fd);
    (void)gb_keeper_send(socket, GB_KEEPER_BUSY, 0, -1, MSG_DONTWAIT);
    close(socket);
}

static void welcome(struct keeper *k) {
    int socket = accept4(GB_KEEPER_LISTENER_FD, NULL, NULL, SOCK_CLOEXEC);

    if (socket < 0)
        return;
    if (!is_ours(socket)) {
        close(socket);
    } else if (k->daemon >= 0 && !has_gone(k)) {
        turn_away(socket);
    } else {
        k->daemon = socket;
    }
}

/* --- the process -------------------------------------------------------------------------------------------------- */

/* As many descriptors as the system gives, and no rights that it can do without. It is not to be seen into. */
static void settle(void) {
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGTERM, SIG_DFL);
    (void)prctl(PR_SET_NAME, GB_KEEPER_PROGRAM);
    (void)prctl(PR_SET_DUMPABLE, 0);
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (chdir("/") < 0)
        return;
}

/* Milliseconds until it ends; -1: not while a daemon is there. */
static int left_ms(const struct keeper *k) {
    uint64_t now = gb_clock_ns();
    uint64_t ms;

    if (k->daemon >= 0)
        return -1;
    if (k->count == 0 && k->greeted)
        return 0;
    ms = k->ends_ns > now ? (k->ends_ns - now) / GB_NS_PER_MS + 1 : 0;
    return ms < INT32_MAX ? (int)ms : INT32_MAX;
}

static void loop(struct keeper *k) {
    for (;;) {
        struct pollfd fds[2] = {{.fd = GB_KEEPER_LISTENER_FD, .events = POLLIN}, {.fd = k->daemon, .events = POLLIN}};
        int ms = left_ms(k);
        int n = ms == 0 ? 0 : poll(fds, 2, ms);

        if (n == 0 || (n < 0 && errno != EINTR))
            return;
        if (n < 0)
            continue;
        if (fds[1].revents && k->daemon >= 0 && !serve(k, MSG_DONTWAIT)) {
            part(k);
            if (k->count == 0)
                return;
        }
        if (fds[0].revents)
            welcome(k);
    }
}

int gb_keeper_main(int argc, char **argv) {
    struct keeper k = {.daemon = GB_KEEPER_DAEMON_FD, .keep_for_ms = GB_KEEPER_FOR_S * 1000ull};

    if (argc == 0 || strcmp(argv[0], GB_KEEPER_PROGRAM) != 0)
        return -1;
    settle();
    if (listen(GB_KEEPER_LISTENER_FD, 4) < 0)
        return EXIT_FAILURE;
    loop(&k);
    free(k.items);
    return EXIT_SUCCESS;
}
