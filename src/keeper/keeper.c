/* The keeper: its messages; the process, which has one thread and waits for its listener, for the daemon, or for the
 * end of its time; and the daemon's end, where a lock lets one thread speak at a time. A message that the process does
 * not know ends the connection, not the process. Its refusals are read with the daemon's next call. */
#include "keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"

/* Descriptors that the process begins with, beside the standard ones: the bound socket, and its first daemon. */
#define LISTENER 3
#define FIRST_DAEMON 4

/* --- messages ----------------------------------------------------------------------------------------------------- */

union control {
    struct cmsghdr head;
    char space[CMSG_SPACE(sizeof(int))];
};

int gb_keeper_send(int socket, enum gb_keeper_op op, uint64_t id, int fd, int flags) {
    struct gb_keeper_message m = {GB_KEEPER_MAGIC, GB_KEEPER_VERSION, (uint16_t)op, id};
    struct iovec part = {&m, sizeof(m)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    union control control;
    ssize_t n;

    if (fd >= 0) {
        memset(&control, 0, sizeof(control));
        control.head = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
        message.msg_control = &control;
        message.msg_controllen = sizeof(control.space);
    }
    do
        n = sendmsg(socket, &message, flags | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -1 : 0;
}

static int descriptor_of(struct msghdr *message) {
    struct cmsghdr *head = CMSG_FIRSTHDR(message);
    int fd = -1;

    if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
        head->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(&fd, CMSG_DATA(head), sizeof(fd));
    return fd;
}

int gb_keeper_receive(int socket, struct gb_keeper_message *ret, int *ret_fd, bool *ret_cut, int flags) {
    struct iovec part = {ret, sizeof(*ret)};
    union control control = {.space = {0}};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control.space)};
    ssize_t n;

    *ret_fd = -1;
    *ret_cut = false;
    do
        n = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return (int)n;
    *ret_fd = descriptor_of(&message);
    *ret_cut = message.msg_flags & MSG_CTRUNC;
    if (n == (ssize_t)sizeof(*ret) && !(message.msg_flags & MSG_TRUNC) && ret->magic == GB_KEEPER_MAGIC &&
        ret->version == GB_KEEPER_VERSION)
        return 1;
    if (*ret_fd >= 0)
        close(*ret_fd);
    *ret_fd = -1;
    errno = EBADMSG;
    return -1;
}

static bool peer_of(int socket, struct ucred *ret) {
    socklen_t n = sizeof(*ret);

    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, ret, &n) == 0;
}

/* --- the process: what it keeps ----------------------------------------------------------------------------------- */

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

static bool answer_greeting(struct keeper *k, uint64_t keep_for_s) {
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
        return fd < 0 && answer_greeting(k, m->id);
    case GB_KEEPER_PUT:
        return put(k, m->id, fd) || tell(k, GB_KEEPER_REFUSED, m->id, -1);
    case GB_KEEPER_DROP:
        drop(k, m->id);
        return true;
    case GB_KEEPER_LIST:
        return list(k);
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

    return peer_of(socket, &who) && (who.uid == geteuid() || who.uid == 0);
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
    int socket = accept4(LISTENER, NULL, NULL, SOCK_CLOEXEC);

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
        struct pollfd fds[2] = {{.fd = LISTENER, .events = POLLIN}, {.fd = k->daemon, .events = POLLIN}};
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

/* Before it ends, so that it is its own: a daemon makes a new one when this one does not answer. */
static void forget_socket(void) {
    struct sockaddr_un at;
    socklen_t n = sizeof(at);

    if (getsockname(LISTENER, (struct sockaddr *)&at, &n) == 0)
        (void)unlink(at.sun_path);
}

int gb_keeper_main(int argc, char **argv) {
    struct keeper k = {.daemon = FIRST_DAEMON, .keep_for_ms = GB_KEEPER_FOR_S * 1000ull};

    if (argc == 0 || strcmp(argv[0], GB_KEEPER_PROGRAM) != 0)
        return -1;
    settle();
    if (listen(LISTENER, 4) < 0)
        return EXIT_FAILURE;
    loop(&k);
    forget_socket();
    free(k.items);
    return EXIT_SUCCESS;
}

/* --- the daemon's end --------------------------------------------------------------------------------------------- */

extern char **environ;

struct gb_keeper {
    struct sockaddr_un at;
    unsigned keep_for_s;
    int socket;
    pid_t pid;

    pthread_mutex_t lock;
    bool alive;
    uint64_t kept;
    uint64_t refused;
    uint64_t looked_ns;
};

/* --- the socket --------------------------------------------------------------------------------------------------- */

/* Returns the socket, or -1. */
static int reach(const struct gb_keeper *k) {
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (s >= 0 && connect(s, (const struct sockaddr *)&k->at, sizeof(k->at)) == 0)
        return s;
    if (s >= 0)
        close(s);
    return -1;
}

/* The next message. Returns 1; 0 if it is none of a keeper, or does not come in time; the connection is of no use
 * then. */
static int hear(const struct gb_keeper *k, struct gb_keeper_message *ret, int *ret_fd) {
    struct pollfd p = {.fd = k->socket, .events = POLLIN};
    bool cut;
    int n;

    do
        n = poll(&p, 1, GB_KEEPER_ANSWER_MS);
    while (n < 0 && errno == EINTR);
    return n > 0 && gb_keeper_receive(k->socket, ret, ret_fd, &cut, MSG_DONTWAIT) == 1;
}

static void close_some(const int *fds, unsigned n) {
    unsigned i;

    for (i = 0; i < n; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
}

/* --- starting one ------------------------------------------------------------------------------------------------- */

/* Only its user may connect, from the first moment on. The keeper makes it listen, so that SO_PEERCRED names the
 * keeper. */
static int bind_at(const struct sockaddr_un *at, struct gb_error *err) {
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (s < 0)
        return gb_error_errno(err, GB_ERR_INTERNAL, "socket", errno);
    (void)unlink(at->sun_path);
    if (fchmod(s, 0600) == 0 && bind(s, (const struct sockaddr *)at, sizeof(*at)) == 0 &&
        chmod(at->sun_path, 0600) == 0)
        return s;
    gb_error_errno(err, GB_ERR_INTERNAL, "bind", errno);
    close(s);
    return -1;
}

/* A duplicate beyond those numbers that the keeper's get; -1 with errno. */
static int high(int fd) {
    return fcntl(fd, F_DUPFD_CLOEXEC, FIRST_DAEMON + 1);
}

/* Only the standard descriptors and two sockets reach it: those of the daemon are closed by exec. */
static int spawn(int listener, int daemon, pid_t *ret) {
    char *argv[] = {(char[]){GB_KEEPER_PROGRAM}, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none;
    int r;

    sigemptyset(&none);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&actions, 0, 1);
    posix_spawn_file_actions_adddup2(&actions, 0, 2);
    posix_spawn_file_actions_adddup2(&actions, listener, LISTENER);
    posix_spawn_file_actions_adddup2(&actions, daemon, FIRST_DAEMON);
    r = posix_spawn(ret, "/proc/self/exe", &actions, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    return r;
}

static int start(struct gb_keeper *k, struct gb_error *err) {
    int listener = bind_at(&k->at, err);
    int ends[2] = {-1, -1};
    int passed[2] = {-1, -1};
    int r = 0;

    if (listener < 0)
        return -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0 || (passed[0] = high(listener)) < 0 ||
        (passed[1] = high(ends[1])) < 0)
        r = errno;
    else
        r = spawn(passed[0], passed[1], &k->pid);
    close_some((int[]){listener, ends[1], passed[0], passed[1]}, 4);
    k->socket = ends[0];
    return r == 0 ? 0 : gb_error_errno(err, GB_ERR_INTERNAL, "posix_spawn", r);
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

/* Returns 1 when it has answered; 0 if it has not, or not as a keeper of this version; -1: it speaks to another
 * daemon. */
static int greet(struct gb_keeper *k) {
    struct gb_keeper_message m;
    int fd = -1;

    if (gb_keeper_send(k->socket, GB_KEEPER_HELLO, k->keep_for_s, -1, MSG_DONTWAIT) < 0 || !hear(k, &m, &fd))
        return 0;
    if (fd >= 0)
        close(fd);
    k->kept = m.id;
    if (m.op == GB_KEEPER_BUSY)
        return -1;
    return m.op == GB_KEEPER_HELLO;
}

/* A keeper that does not answer holds memory out of reach. */
static void replace(struct gb_keeper *k) {
    if (k->pid > 1)
        (void)kill(k->pid, SIGKILL);
    close(k->socket);
    k->socket = -1;
}

static int start_and_greet(struct gb_keeper *k, struct gb_error *err) {
    if (start(k, err) < 0)
        return -1;
    return greet(k) > 0 ? 0 : gb_error_set(err, GB_ERR_INTERNAL, "the keeper that was started does not answer");
}

static int open_one(struct gb_keeper *k, struct gb_error *err) {
    struct ucred who;
    int r;

    k->socket = reach(k);
    if (k->socket < 0)
        return start_and_greet(k, err);
    k->pid = peer_of(k->socket, &who) ? who.pid : 0;
    r = greet(k);
    if (r > 0)
        return 0;
    if (r < 0)
        return gb_error_set(err, GB_ERR_INTERNAL, "another daemon speaks to the keeper of this state directory");
    replace(k);
    return start_and_greet(k, err);
}

static int address(struct gb_keeper *k, const char *dir, struct gb_error *err) {
    int n = snprintf(k->at.sun_path, sizeof(k->at.sun_path), "%s/%s", dir, GB_KEEPER_SOCKET);

    k->at.sun_family = AF_UNIX;
    if (n > 0 && (size_t)n < sizeof(k->at.sun_path))
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the path %s/%s is longer than the %zu bytes of a socket's", dir,
                        GB_KEEPER_SOCKET, sizeof(k->at.sun_path) - 1);
}

int gb_keeper_open(const struct gb_keeper_config *config, struct gb_keeper **ret, struct gb_error *err) {
    struct gb_keeper *k = calloc(1, sizeof(*k));

    if (!k)
        return gb_error_memory(err, "the keeper");
    k->socket = -1;
    k->keep_for_s = config->keep_for_s > 0 ? config->keep_for_s : GB_KEEPER_FOR_S;
    pthread_mutex_init(&k->lock, NULL);
    if (address(k, config->dir, err) < 0 || open_one(k, err) < 0) {
        gb_keeper_close(k);
        return -1;
    }
    k->alive = true;
    *ret = k;
    return 0;
}

void gb_keeper_close(struct gb_keeper *k) {
    if (!k)
        return;
    if (k->socket >= 0)
        close(k->socket);
    pthread_mutex_destroy(&k->lock);
    free(k);
}

/* --- speaking ----------------------------------------------------------------------------------------------------- */

static int gone(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_INTERNAL, "the keeper has gone, and with it what it held");
}

static void lose_locked(struct gb_keeper *k) {
    k->alive = false;
    k->kept = 0;
}

/* What the keeper has sent unasked. */
static void read_refusals_locked(struct gb_keeper *k) {
    struct gb_keeper_message m;
    bool cut;
    int fd;
    int r;

    while (k->alive && (r = gb_keeper_receive(k->socket, &m, &fd, &cut, MSG_DONTWAIT)) != -1) {
        if (r == 0 || fd >= 0 || m.op != GB_KEEPER_REFUSED) {
            if (r > 0 && fd >= 0)
                close(fd);
            lose_locked(k);
            return;
        }
        k->refused++;
        k->kept -= k->kept > 0;
    }
    if (k->alive && errno != EAGAIN)
        lose_locked(k);
}

/* Returns 0; 1: the keeper has not read what came before; -1. */
static int try_locked(struct gb_keeper *k, enum gb_keeper_op op, uint64_t id, int fd, struct gb_error *err) {
    read_refusals_locked(k);
    if (!k->alive)
        return gone(err);
    if (gb_keeper_send(k->socket, op, id, fd, MSG_DONTWAIT) == 0) {
        k->kept += op == GB_KEEPER_PUT;
        k->kept -= op == GB_KEEPER_DROP && k->kept > 0;
        return 0;
    }
    if (errno == EAGAIN)
        return 1;
    if (errno == ETOOMANYREFS || errno == ENOBUFS || errno == ENOMEM)
        return gb_error_errno(err, GB_ERR_SATURATED, "sendmsg", errno);
    if (errno == EBADF || errno == EINVAL)
        return gb_error_errno(err, GB_ERR_INTERNAL, "sendmsg", errno);
    lose_locked(k);
    return gone(err);
}

/* The lock is not held while the keeper is waited for. One that reads nothing for so long counts as gone. */
static int speak(struct gb_keeper *k, enum gb_keeper_op op, uint64_t id, int fd, struct gb_error *err) {
    struct pollfd p = {.fd = k->socket, .events = POLLOUT};
    int r;

    for (;;) {
        pthread_mutex_lock(&k->lock);
        r = try_locked(k, op, id, fd, err);
        pthread_mutex_unlock(&k->lock);
        if (r <= 0)
            return r;
        if (poll(&p, 1, GB_KEEPER_ANSWER_MS) != 0)
            continue;
        pthread_mutex_lock(&k->lock);
        lose_locked(k);
        pthread_mutex_unlock(&k->lock);
    }
}

int gb_keeper_put(struct gb_keeper *k, uint64_t id, int fd, struct gb_error *err) {
    return speak(k, GB_KEEPER_PUT, id, fd, err);
}

int gb_keeper_drop(struct gb_keeper *k, uint64_t id, struct gb_error *err) {
    return speak(k, GB_KEEPER_DROP, id, -1, err);
}

/* The answers up to END go to fn; refusals may come between them. */
static int take_answers_locked(struct gb_keeper *k, gb_keeper_item_fn *fn, void *arg, struct gb_error *err) {
    struct gb_keeper_message m;
    uint64_t last = 0;
    int fd = -1;
    int r = 0;

    while (r == 0 && hear(k, &m, &fd)) {
        if (m.op == GB_KEEPER_END && fd < 0) {
            k->kept = m.id;
            return 0;
        }
        if (m.op == GB_KEEPER_REFUSED && fd < 0) {
            k->refused++;
            continue;
        }
        if (m.op != GB_KEEPER_PUT || fd < 0 || m.id <= last) {
            if (fd >= 0)
                close(fd);
            break;
        }
        last = m.id;
        r = fn(arg, m.id, fd);
    }
    lose_locked(k); /* what is left unread would be taken for an answer */
    return r < 0 ? -1 : gb_error_set(err, GB_ERR_INTERNAL, "the keeper did not answer as a keeper does");
}

int gb_keeper_list(struct gb_keeper *k, gb_keeper_item_fn *fn, void *arg, struct gb_error *err) {
    int r;

    pthread_mutex_lock(&k->lock);
    r = try_locked(k, GB_KEEPER_LIST, 0, -1, err);
    if (r > 0)
        r = gb_error_set(err, GB_ERR_SATURATED, "the keeper has not read what was handed over before");
    if (r == 0)
        r = take_answers_locked(k, fn, arg, err);
    pthread_mutex_unlock(&k->lock);
    return r;
}

#define LOOK_NS (100 * GB_NS_PER_MS) /* those who poll statistics do not each ask the kernel */

void gb_keeper_stat(struct gb_keeper *k, struct gb_keeper_stat *ret) {
    uint64_t now = gb_clock_ns();

    pthread_mutex_lock(&k->lock);
    if (now - k->looked_ns >= LOOK_NS) {
        read_refusals_locked(k);
        k->looked_ns = now;
    }
    *ret = (struct gb_keeper_stat){.alive = k->alive, .pid = k->pid, .kept = k->kept, .refused = k->refused};
    pthread_mutex_unlock(&k->lock);
}
