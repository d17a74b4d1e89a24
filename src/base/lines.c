/* Lines of text on their way to a file, a descriptor or the journal. A bounded queue takes them on any thread, and a
 * worker writes them; lines without room are counted. The log, the requests' log and the audit's file use it. */
#include "base/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/thread.h"

/* The bytes of waiting lines, some 8,000. One of two such buffers is filled while the other is written. */
#define PENDING_MAX (2u << 20)
/* While lines come, so that a write has many of them. */
#define TICK_MS 25
#define FILE_PIECE 65536
/* The interval of polls of a reader that does not read, and the wait for it at the end. */
#define LOOK_MS 100
#define JOURNAL_LOOK_MS 10
#define LAST_MS 1000

struct text {
    char *s; /* PENDING_MAX bytes; NULL until it is needed */
    size_t used;
    uint64_t lost; /* lines lost behind these, because the buffer was full */
};

struct gb_lines {
    char *file;
    struct sockaddr_un journal; /* of family AF_UNSPEC: not set */
    bool prefixed;              /* lines begin with <N> */
    size_t (*gap)(char *out, size_t size, uint64_t lost);
    struct gb_worker worker;
    atomic_bool stopping;

    /* The worker's alone. */
    int fd; /* -1: it is not open */
    bool is_regular;
    bool torn; /* a line was written in part */
    struct text batch;
    uint64_t missing; /* lost lines that no gap has reported yet */

    pthread_mutex_t lock; /* for all below; a leaf */
    struct text pending;
    bool asleep; /* the worker must be kicked */
    bool reopen;
    uint64_t lost;
    struct gb_error error;
};

/* --- the target --------------------------------------------------------------------------------------------------- */

static void look_at(struct gb_lines *l) {
    struct stat st;

    l->is_regular = fstat(l->fd, &st) == 0 && S_ISREG(st.st_mode);
    l->torn = false;
}

/* Opening a pipe without a reader fails instead of blocking. */
static int open_target(struct gb_lines *l, struct gb_error *err) {
    if (l->fd >= 0)
        return 0;
    if (l->file)
        l->fd = open(l->file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0640);
    else
        l->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->fd < 0)
        return gb_error_errno(err, GB_ERR_INTERNAL, l->file ? "open" : "socket", errno);
    look_at(l);
    return 0;
}

static bool is_own(const struct gb_lines *l) {
    return l->file || l->journal.sun_family == AF_UNIX;
}

static void close_target(struct gb_lines *l) {
    if (l->fd >= 0 && is_own(l))
        close(l->fd);
    if (is_own(l))
        l->fd = -1;
}

/* Notes a wait for the reader. Returns false if the daemon stops and the reader does not read. */
static bool may_wait(struct gb_lines *l, unsigned ms, unsigned *waited_ms) {
    if (!atomic_load(&l->stopping))
        return true;
    *waited_ms += ms;
    if (*waited_ms < LAST_MS)
        return true;
    errno = ETIMEDOUT;
    return false;
}

/* Waits until the target accepts bytes. */
static bool wait_for_room(struct gb_lines *l, unsigned *waited_ms) {
    struct pollfd pfd = {.fd = l->fd, .events = POLLOUT};

    while (poll(&pfd, 1, LOOK_MS) == 0)
        if (!may_wait(l, LOOK_MS, waited_ms))
            return false;
    return true;
}

/* Of n bytes, those that go in one write: whole lines, as many as the target takes without blocking. */
static size_t piece_of(const struct gb_lines *l, const char *s, size_t n) {
    size_t max = l->is_regular ? FILE_PIECE : GB_LINE_MAX;
    const char *end = n > max ? memrchr(s, '\n', max) : NULL;

    return end ? (size_t)(end - s) + 1 : n > max ? max : n;
}

static ssize_t write_piece(struct gb_lines *l, const char *s, size_t n, unsigned *waited_ms) {
    ssize_t r;

    do {
        if (!l->is_regular && !wait_for_room(l, waited_ms))
            return -1;
        r = write(l->fd, s, n);
    } while (r < 0 && (errno == EINTR || errno == EAGAIN));
    return r;
}

/* One line, "<6>text\n", as a datagram. A socket that is not connected is writable while the journal's queue is full,
 * so that poll does not wait for it. */
static ssize_t send_line(struct gb_lines *l, const char *s, size_t n, unsigned *waited_ms) {
    char message[GB_LINE_MAX + 128];
    int len = snprintf(message, sizeof(message), "PRIORITY=%c\nSYSLOG_IDENTIFIER=gpubufd\nMESSAGE=%.*s", s[1],
                       (int)(n - 3), s + 3);

    while (sendto(l->fd, message, (size_t)len, MSG_NOSIGNAL, (const struct sockaddr *)&l->journal, sizeof(l->journal)) <
           0) {
        if ((errno != EINTR && errno != EAGAIN) || !may_wait(l, JOURNAL_LOOK_MS, waited_ms))
            return -1;
        poll(NULL, 0, JOURNAL_LOOK_MS);
    }
    return (ssize_t)n;
}

static int write_all(struct gb_lines *l, const char *s, size_t n, size_t *ret_written, struct gb_error *err) {
    bool journal = l->journal.sun_family == AF_UNIX;
    unsigned waited_ms = 0;

    for (*ret_written = 0; *ret_written < n;) {
        const char *at = s + *ret_written;
        size_t left = n - *ret_written;
        ssize_t r = journal ? send_line(l, at, (size_t)((const char *)memchr(at, '\n', left) - at) + 1, &waited_ms)
                            : write_piece(l, at, piece_of(l, at, left), &waited_ms);

        if (r < 0)
            return gb_error_errno(err, GB_ERR_INTERNAL, journal ? "sendto" : "write", errno);
        *ret_written += (size_t)r;
    }
    return 0;
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

static uint64_t count_lines(const char *s, size_t n) {
    uint64_t count = 0;
    const char *at;

    for (at = s; (at = memchr(at, '\n', n - (size_t)(at - s))); at++)
        count++;
    return count;
}

/* Returns the lines that were not written, for the reason *err. */
static uint64_t write_text(struct gb_lines *l, const char *s, size_t n, struct gb_error *err) {
    size_t written = 0;

    if (open_target(l, err) == 0 && write_all(l, s, n, &written, err) == 0)
        return 0;
    if (written > 0)
        l->torn = s[written - 1] != '\n';
    if (!l->torn)
        close_target(l);
    return count_lines(s + written, n - written);
}

/* A line that was begun is ended before the next one. */
static void end_torn(struct gb_lines *l) {
    struct gb_error err = GB_ERROR_INIT;

    if (l->torn && write_text(l, "\n", 1, &err) == 0)
        l->torn = false;
}

/* If the gap cannot be written, a later one reports the same lines. */
static void tell_gap(struct gb_lines *l) {
    struct gb_error err = GB_ERROR_INIT;
    char line[GB_LINE_MAX];
    size_t n = 0;

    if (l->missing == 0 || !l->gap)
        return;
    if (l->prefixed)
        n = (size_t)sprintf(line, "<4>");
    n += l->gap(line + n, sizeof(line) - n, l->missing);
    if (write_text(l, line, n, &err) == 0)
        l->missing = 0;
}

static void write_batch(struct gb_lines *l) {
    struct gb_error err = GB_ERROR_INIT;
    uint64_t lost;

    end_torn(l);
    tell_gap(l);
    lost = write_text(l, l->batch.s, l->batch.used, &err);
    l->missing += lost + l->batch.lost;
    if (lost == 0) {
        tell_gap(l);
        return;
    }
    pthread_mutex_lock(&l->lock);
    l->lost += lost;
    l->error = err;
    pthread_mutex_unlock(&l->lock);
}

static void take(struct gb_lines *l, bool *ret_reopen) {
    struct text empty = {.s = l->batch.s};

    pthread_mutex_lock(&l->lock);
    l->batch = l->pending;
    l->pending = empty;
    l->asleep = l->batch.used == 0;
    *ret_reopen = l->reopen;
    l->reopen = false;
    pthread_mutex_unlock(&l->lock);
}

static uint64_t work(void *arg) {
    struct gb_lines *l = arg;
    bool reopen = false;

    take(l, &reopen);
    if (l->batch.used > 0)
        write_batch(l);
    if (reopen) {
        close_target(l);
        if (is_own(l))
            open_target(l, NULL); /* the next line reports the error */
    }
    return l->batch.used > 0 ? TICK_MS : 0;
}

/* --- the owner ---------------------------------------------------------------------------------------------------- */

static int name_journal(struct gb_lines *l, const char *path, struct gb_error *err) {
    if (strlen(path) >= sizeof(l->journal.sun_path))
        return gb_error_set(err, GB_ERR_INTERNAL, "the path of a socket has at most %zu bytes",
                            sizeof(l->journal.sun_path) - 1);
    l->journal.sun_family = AF_UNIX;
    strcpy(l->journal.sun_path, path);
    if (access(path, W_OK) < 0)
        return gb_error_errno(err, GB_ERR_INTERNAL, "access", errno);
    return 0;
}

static int set_target(struct gb_lines *l, const struct gb_lines_to *to, struct gb_error *err) {
    l->fd = -1;
    l->gap = to->gap;
    l->prefixed = to->journal || (!to->file && gb_lines_is_journal(to->fd));
    if (to->journal && name_journal(l, to->journal, err) < 0)
        return -1;
    l->file = to->file ? strdup(to->file) : NULL;
    if (to->file && !l->file)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    if (is_own(l))
        return open_target(l, err);
    l->fd = to->fd;
    look_at(l);
    return 0;
}

int gb_lines_new(const struct gb_lines_to *to, struct gb_lines **ret, struct gb_error *err) {
    struct gb_lines *l = calloc(1, sizeof(*l));

    if (!l)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    l->asleep = true;
    gb_mutex_init(&l->lock);
    gb_worker_init(&l->worker);
    if (set_target(l, to, err) < 0 || gb_worker_start(&l->worker, "gb-lines", 0, work, l, err) < 0) {
        gb_lines_free(l);
        return -1;
    }
    *ret = l;
    return 0;
}

void gb_lines_free(struct gb_lines *l) {
    if (!l)
        return;
    atomic_store(&l->stopping, true);
    gb_worker_stop(&l->worker);
    while (work(l) > 0)
        ;
    gb_worker_done(&l->worker);
    close_target(l);
    pthread_mutex_destroy(&l->lock);
    free(l->batch.s);
    free(l->pending.s);
    free(l->file);
    free(l);
}

static bool append(struct gb_lines *l, int priority, const char *line, size_t n) {
    struct text *to = &l->pending;
    size_t prefix = l->prefixed ? 3 : 0;

    if (!to->s)
        to->s = malloc(PENDING_MAX);
    if (!to->s || n + prefix > GB_LINE_MAX || to->used + n + prefix > PENDING_MAX)
        return false;
    if (prefix > 0)
        memcpy(to->s + to->used, (char[]){'<', (char)('0' + priority), '>'}, prefix);
    memcpy(to->s + to->used + prefix, line, n);
    to->used += n + prefix;
    return true;
}

void gb_lines_put(struct gb_lines *l, int priority, const char *line, size_t n) {
    bool kick;

    pthread_mutex_lock(&l->lock);
    if (!append(l, priority, line, n)) {
        l->lost++;
        l->pending.lost++;
        l->error = GB_ERROR_INIT;
        gb_error_set(&l->error, GB_ERR_SATURATED, "lines come faster than they are taken");
    }
    kick = l->asleep;
    l->asleep = false;
    pthread_mutex_unlock(&l->lock);
    if (kick)
        gb_worker_kick(&l->worker);
}

void gb_lines_reopen(struct gb_lines *l) {
    pthread_mutex_lock(&l->lock);
    l->reopen = true;
    pthread_mutex_unlock(&l->lock);
    gb_worker_kick(&l->worker);
}

uint64_t gb_lines_lost(struct gb_lines *l, struct gb_error *ret_error) {
    uint64_t lost;

    pthread_mutex_lock(&l->lock);
    lost = l->lost;
    *ret_error = l->error;
    pthread_mutex_unlock(&l->lock);
    return lost;
}

bool gb_lines_is_journal(int fd) {
    const char *named = getenv("JOURNAL_STREAM");
    char own[64];
    struct stat st;

    if (!named || fstat(fd, &st) < 0)
        return false;
    snprintf(own, sizeof(own), "%llu:%llu", (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
    return strcmp(named, own) == 0;
}
