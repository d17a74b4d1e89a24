/* A connection to a source. libcurl resolves, connects and speaks TLS; heads and bodies are read here, so that bytes
 * are received straight into the room of a part. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "pull/internal.h"

#define MARK_BYTES (1u << 20)
#define TICK_MS 100

void gb_pull_conn_init(struct gb_pull_conn *conn, struct gb_pull *pull) {
    memset(conn, 0, sizeof(*conn));
    conn->pull = pull;
    conn->fd = -1;
}

void gb_pull_conn_close(struct gb_pull_conn *conn) {
    if (conn->easy)
        curl_easy_cleanup(conn->easy);
    conn->easy = NULL;
    conn->fd = -1;
    conn->have = 0;
    conn->taken = 0;
    conn->used = false;
    conn->mark = 0;
    conn->origin[0] = '\0';
}

int gb_pull_poll(const struct gb_pull *pull, int fd, short events, int ms) {
    struct pollfd fds[3] = {
        {.fd = pull->stop, .events = POLLIN}, {.fd = pull->halt, .events = POLLIN}, {.fd = fd, .events = events}};
    int n;

    do
        n = poll(fds, 3, ms);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return 0;
    if (fds[0].revents || fds[1].revents)
        return -1;
    return n > 0;
}

/* --- the connection ----------------------------------------------------------------------------------------------- */

static int on_progress(void *arg, curl_off_t down, curl_off_t came, curl_off_t up, curl_off_t went) {
    (void)down;
    (void)came;
    (void)up;
    (void)went;
    return gb_pull_ends(arg);
}

static bool set_options(struct gb_pull_conn *conn, const char *origin) {
    CURL *easy = conn->easy;
    const char *ca = conn->pull->pulls->ca_file;
    bool ok;

    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1l);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)GB_PULL_CONNECT_MS);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)GB_PULL_CONNECT_MS);
    curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1l);
    curl_easy_setopt(easy, CURLOPT_SSL_ENABLE_ALPN, 0l); /* HTTP/1.1 is spoken */
    curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0l);
    curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(easy, CURLOPT_XFERINFODATA, conn->pull);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, conn->said);
#if LIBCURL_VERSION_NUM >= 0x075500
    ok = curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK;
#else
    ok = curl_easy_setopt(easy, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS)) == CURLE_OK;
#endif
#if LIBCURL_VERSION_NUM >= 0x075700
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1l);
#endif
    /* A proxy of the daemon's environment is not meant for this. */
    ok = ok && curl_easy_setopt(easy, CURLOPT_PROXY, "") == CURLE_OK;
    ok = ok && curl_easy_setopt(easy, CURLOPT_URL, origin) == CURLE_OK;
    ok = ok && (!ca || curl_easy_setopt(easy, CURLOPT_CAINFO, ca) == CURLE_OK);
    return ok && curl_easy_setopt(easy, CURLOPT_CONNECT_ONLY, 1l) == CURLE_OK;
}

static enum gb_pull_outcome unreachable(const struct gb_pull_conn *conn, const char *why, struct gb_error *err) {
    gb_error_set(err, GB_ERR_SOURCE_UNREACHABLE, "the source %s: %s", conn->origin, why);
    return GB_PULL_BROKEN;
}

enum gb_pull_outcome gb_pull_conn_open(struct gb_pull_conn *conn, const char *origin, struct gb_error *err) {
    curl_socket_t fd = CURL_SOCKET_BAD;
    CURLcode code;

    if (conn->easy && strcmp(conn->origin, origin) == 0)
        return GB_PULL_OK;
    gb_pull_conn_close(conn);
    snprintf(conn->origin, sizeof(conn->origin), "%s", origin);
    conn->easy = curl_easy_init();
    conn->silent = false;
    conn->said[0] = '\0';
    if (!conn->easy || !set_options(conn, origin)) {
        unreachable(conn, "no memory for a connection", err);
        gb_pull_conn_close(conn);
        return GB_PULL_BROKEN;
    }
    code = curl_easy_perform(conn->easy);
    if (code == CURLE_ABORTED_BY_CALLBACK) {
        gb_pull_conn_close(conn);
        return GB_PULL_STOPPED;
    }
    if (code != CURLE_OK || curl_easy_getinfo(conn->easy, CURLINFO_ACTIVESOCKET, &fd) != CURLE_OK ||
        fd == CURL_SOCKET_BAD) {
        unreachable(conn, conn->said[0] ? conn->said : curl_easy_strerror(code), err);
        gb_pull_conn_close(conn);
        return GB_PULL_BROKEN;
    }
    conn->fd = (int)fd;
    return GB_PULL_OK;
}

/* Fewer bytes than the mark wake no one, and a kernel that is short of memory has no room for more. */
static bool has_bytes(const struct gb_pull_conn *conn) {
    int n = 0;

    return ioctl(conn->fd, FIONREAD, &n) == 0 && n > 0;
}

enum gb_pull_outcome gb_pull_conn_wait(struct gb_pull_conn *conn, short events, int ms, struct gb_error *err) {
    char why[64];
    int waited;
    int r = 0;

    for (waited = 0; r == 0 && waited < ms; waited += TICK_MS) {
        r = gb_pull_poll(conn->pull, conn->fd, events, ms - waited < TICK_MS ? ms - waited : TICK_MS);
        if (r == 0 && (events & POLLIN) && has_bytes(conn))
            r = 1;
    }
    if (r != 0)
        return r < 0 ? GB_PULL_STOPPED : GB_PULL_OK;
    conn->silent = true;
    snprintf(why, sizeof(why), "nothing came for %d s", ms / 1000);
    return unreachable(conn, why, err);
}

static bool is_plain(const struct gb_pull_conn *conn) {
    return strncmp(conn->origin, "http:", 5) == 0;
}

void gb_pull_conn_mark(struct gb_pull_conn *conn, uint64_t remaining) {
    int bytes = remaining < MARK_BYTES ? (int)remaining : (int)MARK_BYTES;

    /* TLS decrypts record by record, whatever else is there. */
    if (bytes == conn->mark || bytes == 0 || !is_plain(conn))
        return;
    if (setsockopt(conn->fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes)) == 0)
        conn->mark = bytes;
}

/* --- bytes -------------------------------------------------------------------------------------------------------- */

enum gb_pull_outcome gb_pull_conn_send(struct gb_pull_conn *conn, const char *bytes, size_t n, struct gb_error *err) {
    enum gb_pull_outcome outcome;
    size_t sent = 0;
    size_t at = 0;
    CURLcode code;

    while (at < n) {
        code = curl_easy_send(conn->easy, bytes + at, n - at, &sent);
        if (code == CURLE_OK) {
            at += sent;
            continue;
        }
        if (code != CURLE_AGAIN)
            return unreachable(conn, conn->used ? "the connection was closed" : curl_easy_strerror(code), err);
        outcome = gb_pull_conn_wait(conn, POLLOUT, GB_PULL_STALL_MS, err);
        if (outcome != GB_PULL_OK)
            return outcome;
    }
    return GB_PULL_OK;
}

static enum gb_pull_outcome receive_tls(struct gb_pull_conn *conn, void *room, size_t n, size_t *ret,
                                        struct gb_error *err) {
    CURLcode code = curl_easy_recv(conn->easy, room, n, ret);

    if (code == CURLE_AGAIN) {
        *ret = 0;
        return GB_PULL_OK;
    }
    if (code != CURLE_OK)
        return unreachable(conn, curl_easy_strerror(code), err);
    return *ret > 0 ? GB_PULL_OK : unreachable(conn, "the connection was closed", err);
}

/* libcurl would receive 16 KiB at a time. */
static enum gb_pull_outcome receive(struct gb_pull_conn *conn, void *room, size_t n, size_t *ret,
                                    struct gb_error *err) {
    ssize_t got;

    *ret = 0;
    if (!is_plain(conn))
        return receive_tls(conn, room, n, ret, err);
    got = recv(conn->fd, room, n, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return GB_PULL_OK;
    if (got <= 0)
        return unreachable(conn, got == 0 ? "the connection was closed" : strerrordesc_np(errno), err);
    *ret = (size_t)got;
    return GB_PULL_OK;
}

enum gb_pull_outcome gb_pull_conn_recv(struct gb_pull_conn *conn, void *room, size_t n, size_t *ret,
                                       struct gb_error *err) {
    size_t ahead = conn->have - conn->taken;

    if (ahead == 0)
        return receive(conn, room, n, ret, err);
    *ret = n < ahead ? n : ahead;
    memcpy(room, conn->ahead + conn->taken, *ret);
    conn->taken += *ret;
    return GB_PULL_OK;
}

/* Drops what was taken, so that a head begins at ahead[0]. */
static void move_up(struct gb_pull_conn *conn) {
    memmove(conn->ahead, conn->ahead + conn->taken, conn->have - conn->taken);
    conn->have -= conn->taken;
    conn->taken = 0;
}

enum gb_pull_outcome gb_pull_conn_in_time(const struct gb_pull_conn *conn, uint64_t end_ns, struct gb_error *err) {
    if (gb_pull_ends(conn->pull))
        return GB_PULL_STOPPED;
    return gb_clock_ns() < end_ns ? GB_PULL_OK : unreachable(conn, "its answer does not end", err);
}

static enum gb_pull_outcome more_of_head(struct gb_pull_conn *conn, struct gb_error *err) {
    enum gb_pull_outcome outcome;
    size_t n = 0;

    outcome = receive(conn, conn->ahead + conn->have, sizeof(conn->ahead) - conn->have, &n, err);
    conn->have += n;
    if (outcome != GB_PULL_OK || n > 0)
        return outcome;
    return gb_pull_conn_wait(conn, POLLIN, GB_PULL_ANSWER_MS, err);
}

enum gb_pull_outcome gb_pull_conn_head(struct gb_pull_conn *conn, struct gb_pull_head *ret, struct gb_error *err) {
    uint64_t end_ns = gb_clock_ns() + GB_PULL_ANSWER_MS * GB_NS_PER_MS;
    enum gb_pull_outcome outcome;
    int n;

    move_up(conn);
    for (;;) {
        n = conn->have == 0 ? 0 : gb_pull_head_read(conn->ahead, conn->have, ret);
        if (n < 0) {
            gb_error_set(err, GB_ERR_SOURCE_REFUSED, "the source %s: what answers is not HTTP/1.1", conn->origin);
            return GB_PULL_FAILED;
        }
        conn->taken = (size_t)n;
        if (n > 0 && ret->status >= 200)
            break;
        move_up(conn);
        outcome = gb_pull_conn_in_time(conn, end_ns, err);
        if (outcome == GB_PULL_OK && n == 0)
            outcome = more_of_head(conn, err);
        if (outcome != GB_PULL_OK)
            return outcome;
    }
    conn->used = true;
    return GB_PULL_OK;
}
