/* The daemon's end. A lock lets one thread speak at a time; a put is one call of the kernel. Refusals are read with the
 * next call, or with the statistics. */
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
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "keeper/wire.h"

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
    uint64_t failed;
    uint64_t looked_ns;
};

/* --- the socket --------------------------------------------------------------------------------------------------- */

/* Returns the socket; -1 with errno. */
static int reach(const struct gb_keeper *k) {
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    int saved;

    if (s >= 0 && connect(s, (const struct sockaddr *)&k->at, sizeof(k->at)) == 0)
        return s;
    saved = errno;
    if (s >= 0)
        close(s);
    errno = saved;
    return -1;
}

static pid_t peer_of(int s) {
    struct ucred who;
    socklen_t n = sizeof(who);

    return getsockopt(s, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 ? who.pid : 0;
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
    return fcntl(fd, F_DUPFD_CLOEXEC, GB_KEEPER_DAEMON_FD + 1);
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
    posix_spawn_file_actions_adddup2(&actions, listener, GB_KEEPER_LISTENER_FD);
    posix_spawn_file_actions_adddup2(&actions, daemon, GB_KEEPER_DAEMON_FD);
    r = posix_spawn(ret, "/proc/self/exe", &actions, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    return r;
}

static int start(struct gb_keeper *k, struct gb_error *err) {
    int ends[2] = {-1, -1};
    int passed[2];
    int listener = bind_at(&k->at, err);
    int r;

    if (listener < 0)
        return -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        r = errno;
    else
        r = 0;
    passed[0] = r == 0 ? high(listener) : -1;
    passed[1] = r == 0 ? high(ends[1]) : -1;
    if (r == 0)
        r = passed[0] >= 0 && passed[1] >= 0 ? spawn(passed[0], passed[1], &k->pid) : errno;
    close_some((int[]){listener, ends[1], passed[0], passed[1]}, 4);
    if (r == 0) {
        k->socket = ends[0];
        return 0;
    }
    close_some(ends, 1);
    return gb_error_errno(err, GB_ERR_INTERNAL, "posix_spawn", r);
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

static int busy(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_INTERNAL, "another daemon speaks to the keeper of this state directory");
}

static int open_one(struct gb_keeper *k, struct gb_error *err) {
    int r = 0;

    k->socket = reach(k);
    if (k->socket >= 0) {
        k->pid = peer_of(k->socket);
        r = greet(k);
        if (r == 0)
            replace(k);
    }
    if (r > 0)
        return 0;
    if (r < 0)
        return busy(err);
    if (start(k, err) < 0)
        return -1;
    r = greet(k);
    return r > 0 ? 0 : gb_error_set(err, GB_ERR_INTERNAL, "the keeper that was started does not answer");
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
    k->failed++;
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
        k->failed++;
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
        if (!fn || m.op != GB_KEEPER_PUT || fd < 0 || m.id <= last) {
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

static int ask(struct gb_keeper *k, enum gb_keeper_op op, gb_keeper_item_fn *fn, void *arg, struct gb_error *err) {
    int r;

    pthread_mutex_lock(&k->lock);
    r = try_locked(k, op, 0, -1, err);
    if (r > 0)
        r = gb_error_set(err, GB_ERR_SATURATED, "the keeper has not read what was handed over before");
    if (r == 0)
        r = take_answers_locked(k, fn, arg, err);
    pthread_mutex_unlock(&k->lock);
    return r;
}

int gb_keeper_list(struct gb_keeper *k, gb_keeper_item_fn *fn, void *arg, struct gb_error *err) {
    return ask(k, GB_KEEPER_LIST, fn, arg, err);
}

int gb_keeper_sync(struct gb_keeper *k, struct gb_error *err) {
    return ask(k, GB_KEEPER_SYNC, NULL, NULL, err);
}

#define LOOK_NS (100 * GB_NS_PER_MS) /* those who poll statistics do not each ask the kernel */

void gb_keeper_stat(struct gb_keeper *k, struct gb_keeper_stat *ret) {
    uint64_t now = gb_clock_ns();

    pthread_mutex_lock(&k->lock);
    if (now - k->looked_ns >= LOOK_NS) {
        read_refusals_locked(k);
        k->looked_ns = now;
    }
    *ret = (struct gb_keeper_stat){
        .alive = k->alive, .pid = k->pid, .kept = k->kept, .refused = k->refused, .failed = k->failed};
    pthread_mutex_unlock(&k->lock);
}
