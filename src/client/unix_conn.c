/* The connection that is the lease of a client's mappings: HTTP/1.1 by hand over a UNIX socket, as libcurl takes no
 * descriptors. One exchange at a time under a lock; a broken connection is not used again, and its mappings end with
 * it. map.c calls it. */
#include "client/unix_conn.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/epochs.h"
#include "client/http.h"

#define POLL_MS 100
#define DIAL_MS 10 /* between two attempts to connect */
#define BODY_MAX ((uint64_t)1 << 20)
#define HEAD_MAX 65536

struct gbc_link {
    atomic_uint refs;
    atomic_int broken;
    pthread_mutex_t lock; /* one request at a time */
    int fd;
    char *socket;
    char *token;
    char *agent;
    uint64_t answer_ms;
    struct gbc_epochs *epochs;
    struct gbc_driver *driver;
};

/* --- life --------------------------------------------------------------------------------------------------------- */

static int no_way_there(const struct gbc_link *link, int code, struct gpubuf_error *err) {
    char why[GBC_REFUSAL_SIZE];

    gbc_error_errno(err, GPUBUF_CANNOT_CONNECT, "connect", code);
    if (code == EACCES || code == EPERM)
        gbc_socket_refusal(link->socket, why, sizeof(why));
    else
        snprintf(why, sizeof(why), "%s", strerrorname_np(code));
    if (err)
        snprintf(err->detail, sizeof(err->detail), "%s cannot be reached: %s", link->socket, why);
    return -1;
}

/* A socket whose queue is full makes connect() wait without an end, and over every signal: it is asked again
 * instead. */
static int dial(struct gbc_link *link, const struct gbc_settings *set, struct gpubuf_error *err) {
    uint64_t end_ms = gbc_now_ms() + set->connect_ms;
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    gbc_copy(at.sun_path, sizeof(at.sun_path), link->socket);
    link->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (link->fd < 0)
        return gbc_error_errno(err, GPUBUF_CANNOT_CONNECT, "socket", errno);
    while (connect(link->fd, (struct sockaddr *)&at, sizeof(at)) < 0) {
        int code = errno;

        if (code == EINTR)
            continue;
        if (code != EAGAIN || gbc_now_ms() >= end_ms)
            return no_way_there(link, code, err);
        if (atomic_load(&set->interrupted))
            return gbc_error_set(err, GPUBUF_INTERRUPTED, "gpubuf_interrupt() asked for it");
        poll(NULL, 0, DIAL_MS);
    }
    return 0;
}

/* Connects. The settings are copied as far as they are needed. */
static struct gbc_link *link_new(const struct gbc_settings *set, struct gpubuf_error *err) {
    struct gbc_link *link = calloc(1, sizeof(*link));

    if (!link) {
        gbc_error_memory(err);
        return NULL;
    }
    atomic_init(&link->refs, 1);
    atomic_init(&link->broken, 0);
    pthread_mutex_init(&link->lock, NULL);
    link->fd = -1;
    link->socket = strdup(set->map_socket);
    link->token = set->token ? strdup(set->token) : NULL;
    link->agent = strdup(set->agent);
    link->answer_ms = set->answer_ms;
    link->epochs = gbc_epochs_ref(set->epochs);
    if (!link->socket || !link->agent || (set->token && !link->token))
        gbc_error_memory(err);
    else if (dial(link, set, err) == 0)
        return link;
    gbc_link_leave(link);
    return NULL;
}

struct gbc_link *gbc_link_ref(struct gbc_link *link) {
    atomic_fetch_add(&link->refs, 1);
    return link;
}

void gbc_link_leave(struct gbc_link *link) {
    if (!link || atomic_fetch_sub(&link->refs, 1) > 1)
        return;
    if (link->fd >= 0)
        close(link->fd);
    gbc_driver_free(link->driver);
    pthread_mutex_destroy(&link->lock);
    free(link->socket);
    free(link->token);
    free(link->agent);
    gbc_epochs_unref(link->epochs);
    free(link);
}

bool gbc_link_alive(const struct gbc_link *link) {
    struct pollfd p = {.fd = link->fd, .events = POLLRDHUP};

    return !atomic_load(&link->broken) && (poll(&p, 1, 0) == 0 || (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) == 0);
}

int gbc_link_fd(const struct gbc_link *link) {
    return link->fd;
}

struct gbc_driver *gbc_link_driver(struct gbc_link *link, struct gpubuf_error *err) {
    struct gbc_driver *driver;

    pthread_mutex_lock(&link->lock);
    if (!link->driver)
        link->driver = gbc_driver_open(err);
    driver = link->driver;
    pthread_mutex_unlock(&link->lock);
    return driver;
}

int gbc_link_up(gpubuf_client *client, struct gpubuf_error *err) {
    if (client->link && gbc_link_alive(client->link))
        return 0;
    if (!client->set.map_socket)
        return gbc_error_set(
            err, GPUBUF_CANNOT_MAP,
            "%s is no UNIX socket: mapping needs unix:///PATH, or the daemon's socket in GPUBUF_SOCKET",
            client->set.url);
    gbc_link_leave(client->link);
    client->link = link_new(&client->set, err);
    return client->link ? 0 : -1;
}

/* --- one exchange ------------------------------------------------------------------------------------------------- */

struct exchange {
    struct gbc_link *link;
    struct gbc_link_answer *answer;
    const atomic_int *interrupted;
    uint64_t end_ms;
    struct gbc_text got; /* what came and is not parsed yet */
    int give;            /* a descriptor that is asked for; -1: none, or it has been given */
    struct gpubuf_error *err;
};

/* Until the socket is ready for it: 0, or -1 with err. */
static int ready(const struct exchange *x, short events) {
    for (;;) {
        struct pollfd p = {.fd = x->link->fd, .events = events};

        if (x->interrupted && atomic_load(x->interrupted))
            return gbc_error_set(x->err, GPUBUF_INTERRUPTED, "gpubuf_interrupt() asked for it");
        if (gbc_now_ms() >= x->end_ms)
            return gbc_error_set(x->err, GPUBUF_CLIENT_TIMEOUT, "no answer from %s in the permitted time",
                                 x->link->socket);
        if (poll(&p, 1, POLL_MS) > 0)
            return 0;
    }
}

static int send_all(const struct exchange *x, const char *data, size_t bytes) {
    while (bytes > 0) {
        ssize_t n = ready(x, POLLOUT) < 0 ? -2 : send(x->link->fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n == -2)
            return -1;
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return gbc_error_errno(x->err, GPUBUF_CONNECTION_LOST, "send", errno);
        if (n > 0) {
            data += n;
            bytes -= (size_t)n;
        }
    }
    return 0;
}

static void take_fds(struct gbc_link_answer *answer, struct msghdr *message) {
    struct cmsghdr *c;

    for (c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        size_t n =
            c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS ? (c->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;
        size_t i;

        for (i = 0; i < n; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            if (answer->fds < GBC_LINK_FDS)
                answer->fd[answer->fds++] = fd;
            else
                close(fd);
        }
    }
}

/* The daemon has sent the socket that takes ours. */
static int give(struct exchange *x) {
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {.bytes = ""};
    char byte = 'x';
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    ssize_t n;

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &x->give, sizeof(int));
    do
        n = sendmsg(x->answer->fd[0], &message, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n < 0) {
        gbc_error_errno(x->err, GPUBUF_CANNOT_MAP, "sendmsg", errno);
        return -1;
    }
    close(x->answer->fd[0]);
    x->answer->fds--;
    memmove(x->answer->fd, x->answer->fd + 1, x->answer->fds * sizeof(int));
    x->give = -1;
    return 0;
}

/* Some more bytes, and what comes with them. */
static int receive(struct exchange *x) {
    char control[CMSG_SPACE(sizeof(int) * GBC_LINK_FDS * 2)];
    char data[16384];
    struct iovec part = {.iov_base = data, .iov_len = sizeof(data)};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    ssize_t n;

    if (ready(x, POLLIN) < 0)
        return -1;
    n = recvmsg(x->link->fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n < 0)
        return gbc_error_errno(x->err, GPUBUF_CONNECTION_LOST, "recvmsg", errno);
    take_fds(x->answer, &message);
    if (n == 0)
        return gbc_error_set(x->err, GPUBUF_CONNECTION_LOST, "%s closed the connection before the answer was whole",
                             x->link->socket);
    if (message.msg_flags & MSG_CTRUNC)
        return gbc_error_set(x->err, GPUBUF_BAD_ANSWER,
                             "descriptors came that could not be taken: more than a gpubufd sends, or this "
                             "process has as many open as it may");
    if (x->give >= 0 && x->answer->fds > 0 && give(x) < 0)
        return -1;
    gbc_text_add(&x->got, data, (size_t)n);
    return x->got.failed ? gbc_error_memory(x->err) : 0;
}

static void consume(struct gbc_text *text, size_t bytes) {
    memmove(text->data, text->data + bytes, text->bytes - bytes + 1);
    text->bytes -= bytes;
}

/* Interim answers and the header of the final one. */
static int head(struct exchange *x) {
    bool end = false;

    while (!end) {
        char *line_end = x->got.bytes > 0 ? strchr(x->got.data, '\n') : NULL;

        if (!line_end) {
            if (x->got.bytes > HEAD_MAX)
                return gbc_error_set(x->err, GPUBUF_BAD_ANSWER, "a header without an end");
            if (receive(x) < 0)
                return -1;
            continue;
        }
        gbc_reply_line(&x->answer->reply, x->got.data, (size_t)(line_end - x->got.data) + 1, &end);
        if (x->answer->reply.status < 100)
            return gbc_error_set(x->err, GPUBUF_BAD_ANSWER, "%s does not speak HTTP", x->link->socket);
        consume(&x->got, (size_t)(line_end - x->got.data) + 1);
    }
    return 0;
}

static int body(struct exchange *x) {
    const struct gbc_reply *reply = &x->answer->reply;
    uint64_t bytes = reply->length.set ? reply->length.value : 0;

    if (reply->status == 204)
        return 0;
    if (!reply->length.set || bytes > BODY_MAX)
        return gbc_error_set(x->err, GPUBUF_BAD_ANSWER, "an answer without a sensible Content-Length");
    while (x->got.bytes < bytes) {
        if (receive(x) < 0)
            return -1;
    }
    if (x->got.bytes > bytes)
        return gbc_error_set(x->err, GPUBUF_BAD_ANSWER, "more bytes came than the answer has");
    gbc_text_add(&x->answer->reply.body, x->got.data ? x->got.data : "", bytes);
    return x->answer->reply.body.failed ? gbc_error_memory(x->err) : 0;
}

static int exchange(struct exchange *x, const char *method, const char *target, const char *json, uint32_t wait_s) {
    uint64_t epoch = gbc_epochs_of(x->link->epochs, target);
    struct gbc_text text = {.data = NULL};
    int r;

    gbc_text_addf(&text, "%s %s HTTP/1.1\r\nHost: localhost\r\nUser-Agent: %s\r\n", method, target, x->link->agent);
    if (x->link->token)
        gbc_text_addf(&text, "Authorization: Bearer %s\r\n", x->link->token);
    if (epoch > 0)
        gbc_text_addf(&text, "Gpubuf-Epoch: %llu\r\n", (unsigned long long)epoch);
    if (wait_s > 0)
        gbc_text_addf(&text, "Prefer: wait=%u\r\n", (unsigned)wait_s);
    if (json)
        gbc_text_addf(&text, "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", strlen(json), json);
    else
        gbc_text_addf(&text, "\r\n");
    r = text.failed ? gbc_error_memory(x->err) : send_all(x, text.data, text.bytes);
    gbc_text_done(&text);
    return r < 0 || head(x) < 0 ? -1 : body(x);
}

int gbc_link_ask(struct gbc_link *link, const char *method, const char *target, const char *json, uint32_t wait_s,
                 const atomic_int *interrupted, struct gbc_link_answer *ret, struct gpubuf_error *err) {
    return gbc_link_give(link, method, target, json, -1, wait_s, interrupted, ret, err);
}

int gbc_link_give(struct gbc_link *link, const char *method, const char *target, const char *json, int fd,
                  uint32_t wait_s, const atomic_int *interrupted, struct gbc_link_answer *ret,
                  struct gpubuf_error *err) {
    struct gpubuf_error why;
    struct exchange x = {.link = link,
                         .answer = ret,
                         .give = fd,
                         .interrupted = interrupted,
                         .end_ms = gbc_now_ms() + link->answer_ms + wait_s * (uint64_t)1000,
                         .err = &why};
    int r = -1;

    memset(ret, 0, sizeof(*ret));
    gbc_error_init(&why);
    pthread_mutex_lock(&link->lock);
    if (atomic_load(&link->broken))
        gbc_error_set(&why, GPUBUF_CONNECTION_LOST, "the connection to %s is broken", link->socket);
    else
        r = exchange(&x, method, target, json, wait_s);
    if (r < 0 && !atomic_load(&link->broken)) {
        /* A late reply would be taken for that of the next request: the connection cannot be used again. */
        atomic_store(&link->broken, 1);
        shutdown(link->fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&link->lock);
    gbc_text_done(&x.got);
    if (r == 0 && ret->reply.status >= 400)
        r = gbc_error_problem(&why, ret->reply.status, ret->reply.body.data, ret->reply.body.bytes);
    if (ret->reply.status > 0)
        gbc_epochs_answer(link->epochs, method, target, &ret->reply, why.code);
    if (r < 0 && err && err->code == GPUBUF_OK)
        *err = why;
    return r;
}

void gbc_link_answer_done(struct gbc_link_answer *answer) {
    size_t i;

    for (i = 0; i < answer->fds; i++) {
        if (answer->fd[i] >= 0)
            close(answer->fd[i]);
    }
    gbc_reply_done(&answer->reply);
}
