/* The source of a pull over HTTP/1.1: connections, heads, requests with their redirects, refusals, and the source's
 * record. libcurl resolves, connects and does TLS. Heads and bodies are read here, so that bytes are received straight
 * into the room of a part. Nothing that a source sends is trusted. pull.c and failover.c call this on the threads of a
 * pull. */
#include "fleet/pull/source.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/encoding.h"
#include "base/text.h"

/* --- connections and requests ------------------------------------------------------------------------------------- */

#define MARK_BYTES (1u << 20)
#define TICK_MS 100
#define HOPS_MAX 3
#define REQUEST_SIZE 8192
#define PROBLEM_MAX 16384
#define PATH_SIZE (2 * GB_NAME_MAX + 64)

#define PLACES_MAX 16

static unsigned count_places(const struct gb_pull *pull) {
    const struct gb_pull_place *place;
    unsigned n = 0;

    for (place = atomic_load(&pull->place); place; place = place->former)
        n++;
    return n;
}

/* Only sealed buffers have replicas. A source whose record is unknown may be sealed. */
bool gb_pull_may_fail_over(const struct gb_pull *pull) {
    return pull->params.failover.find && (pull->source.sealed || pull->source.tag[0] == '\0') &&
           count_places(pull) < PLACES_MAX;
}

/* --- heads -------------------------------------------------------------------------------------------------------- */

struct line {
    const char *s;
    size_t n;
};

/* Reads up to the next LF. A CR before the LF is not part of the line. False: no LF. */
static bool next_line(const char **at, const char *end, struct line *ret) {
    const char *lf = memchr(*at, '\n', (size_t)(end - *at));

    if (!lf)
        return false;
    *ret = (struct line){*at, (size_t)(lf - *at)};
    if (ret->n > 0 && ret->s[ret->n - 1] == '\r')
        ret->n--;
    *at = lf + 1;
    return true;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* HTTP/1.1 200 OK */
static bool read_status(struct line line, struct gb_pull_head *ret) {
    if (line.n < 12 || memcmp(line.s, "HTTP/1.", 7) != 0 || !is_digit(line.s[7]) || line.s[8] != ' ')
        return false;
    if (!is_digit(line.s[9]) || !is_digit(line.s[10]) || !is_digit(line.s[11]) || (line.n > 12 && line.s[12] != ' '))
        return false;
    ret->status = (line.s[9] - '0') * 100 + (line.s[10] - '0') * 10 + (line.s[11] - '0');
    ret->closes = line.s[7] == '0';
    return ret->status >= 100;
}

static bool same(struct line a, const char *b) {
    return a.n == strlen(b) && strncasecmp(a.s, b, a.n) == 0;
}

static struct line trim(struct line line) {
    while (line.n > 0 && (line.s[0] == ' ' || line.s[0] == '\t')) {
        line.s++;
        line.n--;
    }
    while (line.n > 0 && (line.s[line.n - 1] == ' ' || line.s[line.n - 1] == '\t'))
        line.n--;
    return line;
}

static void keep(struct line value, char *ret, size_t size) {
    size_t i;

    ret[0] = '\0';
    if (value.n >= size)
        return;
    for (i = 0; i < value.n; i++)
        if ((unsigned char)value.s[i] < ' ' || value.s[i] == 0x7f)
            return;
    memcpy(ret, value.s, value.n);
    ret[value.n] = '\0';
}

/* bytes 0-99/1000 */
static bool read_range(struct line value, struct gb_pull_head *ret) {
    const char *dash = memchr(value.s, '-', value.n);
    const char *slash = memchr(value.s, '/', value.n);
    const char *end = value.s + value.n;

    if (value.n < 6 || strncasecmp(value.s, "bytes ", 6) != 0 || !dash || !slash || slash < dash)
        return false;
    if (gb_parse_u64(value.s + 6, (size_t)(dash - value.s - 6), &ret->first) != GB_PARSE_OK ||
        gb_parse_u64(dash + 1, (size_t)(slash - dash - 1), &ret->last) != GB_PARSE_OK ||
        gb_parse_u64(slash + 1, (size_t)(end - slash - 1), &ret->total) != GB_PARSE_OK)
        return false;
    ret->has_range = true;
    return ret->first <= ret->last && ret->last < ret->total;
}

static bool read_length(struct line value, struct gb_pull_head *ret) {
    uint64_t length;

    if (gb_parse_u64(value.s, value.n, &length) != GB_PARSE_OK || (ret->has_length && length != ret->length))
        return false;
    ret->has_length = true;
    ret->length = length;
    return true;
}

static void read_crc32c(struct line value, struct gb_pull_head *ret) {
    if (gb_hex_u32(value.s, value.n, &ret->crc32c))
        ret->has_crc32c = true;
}

static void read_retry_after(struct line value, struct gb_pull_head *ret) {
    uint64_t s;

    if (gb_parse_u64(value.s, value.n, &s) == GB_PARSE_OK)
        ret->retry_after_s = s < 3600 ? (unsigned)s : 3600;
}

static bool read_field(struct line name, struct line value, struct gb_pull_head *ret) {
    if (same(name, "Content-Length"))
        return read_length(value, ret);
    if (same(name, "Content-Range"))
        return ret->status != 206 || read_range(value, ret);
    if (same(name, "Transfer-Encoding") || (same(name, "Content-Encoding") && !same(value, "identity")))
        ret->coded = true;
    else if (same(name, "Connection"))
        ret->closes = ret->closes || same(value, "close");
    else if (same(name, "ETag"))
        keep(value, ret->tag, sizeof(ret->tag));
    else if (same(name, "Location"))
        keep(value, ret->location, sizeof(ret->location));
    else if (same(name, "Retry-After"))
        read_retry_after(value, ret);
    else if (same(name, "Gpubuf-Crc32c"))
        read_crc32c(value, ret);
    else if (same(name, "Gpubuf-Epoch") || same(name, "Gpubuf-Replica"))
        ret->registered = true;
    else if (same(name, "Gpubuf-Generation"))
        ret->has_generation = gb_parse_u64(value.s, value.n, &ret->generation) == GB_PARSE_OK;
    return true;
}

int gb_pull_head_read(const char *bytes, size_t n, struct gb_pull_head *ret) {
    const char *end = bytes + n;
    const char *at = bytes;
    struct line line;
    const char *colon;

    memset(ret, 0, sizeof(*ret));
    if (!next_line(&at, end, &line))
        return n >= GB_PULL_HEAD_MAX || (n >= 5 && memcmp(bytes, "HTTP/", 5) != 0) ? -1 : 0;
    if (!read_status(line, ret))
        return -1;
    while (next_line(&at, end, &line)) {
        if (line.n == 0)
            return (int)(at - bytes);
        colon = memchr(line.s, ':', line.n);
        /* A line that begins with a space would continue the one before. */
        if (!colon || colon == line.s || line.s[0] == ' ' || line.s[0] == '\t')
            return -1;
        if (!read_field((struct line){line.s, (size_t)(colon - line.s)},
                        trim((struct line){colon + 1, line.n - (size_t)(colon + 1 - line.s)}), ret))
            return -1;
    }
    return n >= GB_PULL_HEAD_MAX ? -1 : 0;
}

void gb_pull_conn_init(struct gb_pull_conn *conn, struct gb_pull *pull) {
    memset(conn, 0, sizeof(*conn));
    conn->pull = pull;
}

void gb_pull_conn_close(struct gb_pull_conn *conn) {
    if (conn->open)
        gb_http_ask_close(&conn->ask);
    conn->open = false;
    conn->have = 0;
    conn->taken = 0;
    conn->used = false;
    conn->mark = 0;
    conn->origin[0] = '\0';
}

/* --- the connection ----------------------------------------------------------------------------------------------- */

static bool is_to_end(void *arg) {
    return gb_fetch_ends(&((const struct gb_pull *)arg)->fetch);
}

static enum gb_pull_outcome unreachable(const struct gb_pull_conn *conn, const char *why, struct gb_error *err) {
    gb_error_set(err, GB_ERR_SOURCE_UNREACHABLE, "the source %s: %s", conn->origin, why);
    return GB_PULL_BROKEN;
}

/* Connects, unless it is connected to that origin. */
static enum gb_pull_outcome pull_conn_open(struct gb_pull_conn *conn, const char *origin, struct gb_error *err) {
    struct gb_http_tls tls = {.ca = gb_pulls_ca(conn->pull->fetch.pulls)};

    if (conn->open && strcmp(conn->origin, origin) == 0)
        return GB_PULL_OK;
    gb_pull_conn_close(conn);
    snprintf(conn->origin, sizeof(conn->origin), "%s", origin);
    conn->silent = false;
    conn->ask = (struct gb_http_ask){.method = "GET", .url = origin, .tls = &tls, .connect_only = true, .quick = true};
    conn->ask.connect_ms = GB_PULL_CONNECT_MS;
    conn->ask.total_ms = GB_PULL_CONNECT_MS;
    conn->ask.stop = is_to_end;
    conn->ask.arg = conn->pull;
    conn->open = gb_http_ask_perform(&conn->ask) == GB_HTTP_OK;
    conn->ask.tls = NULL;
    if (conn->open)
        return GB_PULL_OK;
    if (conn->ask.outcome != GB_HTTP_STOPPED)
        unreachable(conn, conn->ask.outcome == GB_HTTP_NO_MEMORY ? "no memory for a connection" : conn->ask.said, err);
    gb_pull_conn_close(conn);
    return conn->ask.outcome == GB_HTTP_STOPPED ? GB_PULL_STOPPED : GB_PULL_BROKEN;
}

/* Fewer bytes than the mark wake no thread, and a kernel that is short of memory may not have room for more. */
static bool has_bytes(const struct gb_pull_conn *conn) {
    int n = 0;

    return ioctl(conn->ask.fd, FIONREAD, &n) == 0 && n > 0;
}

enum gb_pull_outcome gb_pull_conn_wait(struct gb_pull_conn *conn, short events, int ms, struct gb_error *err) {
    char why[64];
    int waited;
    int r = 0;

    for (waited = 0; r == 0 && waited < ms; waited += TICK_MS) {
        r = gb_fetch_poll(&conn->pull->fetch, conn->ask.fd, events, ms - waited < TICK_MS ? ms - waited : TICK_MS);
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

    /* TLS decrypts record by record: a mark would be wrong. */
    if (bytes == conn->mark || bytes == 0 || !is_plain(conn))
        return;
    if (setsockopt(conn->ask.fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes)) == 0)
        conn->mark = bytes;
}

/* --- bytes -------------------------------------------------------------------------------------------------------- */

static enum gb_pull_outcome pull_conn_send(struct gb_pull_conn *conn, const char *bytes, size_t n,
                                           struct gb_error *err) {
    enum gb_pull_outcome outcome = GB_PULL_OK;
    size_t at = 0;

    while (at < n && outcome == GB_PULL_OK) {
        ssize_t sent = gb_http_ask_send(&conn->ask, bytes + at, n - at);

        if (sent < 0)
            return unreachable(conn, conn->used ? "the connection was closed" : conn->ask.why, err);
        at += (size_t)sent;
        if (sent == 0)
            outcome = gb_pull_conn_wait(conn, POLLOUT, GB_PULL_STALL_MS, err);
    }
    return outcome;
}

static enum gb_pull_outcome receive_tls(struct gb_pull_conn *conn, void *room, size_t n, size_t *ret,
                                        struct gb_error *err) {
    ssize_t got = gb_http_ask_recv(&conn->ask, room, n);

    if (got < 0)
        return unreachable(conn, conn->ask.why, err);
    *ret = (size_t)got;
    return GB_PULL_OK;
}

/* libcurl would receive 16 KiB at a time. */
static enum gb_pull_outcome receive(struct gb_pull_conn *conn, void *room, size_t n, size_t *ret,
                                    struct gb_error *err) {
    ssize_t got;

    *ret = 0;
    if (!is_plain(conn))
        return receive_tls(conn, room, n, ret, err);
    got = recv(conn->ask.fd, room, n, MSG_DONTWAIT);
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

/* Whether the answer is short enough to continue: a source may send without end. */
static enum gb_pull_outcome pull_conn_in_time(const struct gb_pull_conn *conn, uint64_t end_ns, struct gb_error *err) {
    if (gb_fetch_ends(&conn->pull->fetch))
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

/* Reads the next head that is not an interim response. */
static enum gb_pull_outcome pull_conn_head(struct gb_pull_conn *conn, struct gb_pull_head *ret, struct gb_error *err) {
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
        outcome = pull_conn_in_time(conn, end_ns, err);
        if (outcome == GB_PULL_OK && n == 0)
            outcome = more_of_head(conn, err);
        if (outcome != GB_PULL_OK)
            return outcome;
    }
    conn->used = true;
    return GB_PULL_OK;
}

/* Where a request goes: first to the source, then to where it redirects. */
struct place {
    char origin[GB_PULL_ORIGIN_SIZE];
    char target[GB_PULL_TARGET_SIZE];
};

/* --- places ------------------------------------------------------------------------------------------------------- */

static int first_place(struct gb_pull *pull, const struct gb_pull_ask *ask, struct place *ret, struct gb_error *err) {
    const struct gb_pull_ticket *ticket = &ask->place->ticket;
    const struct gb_pull_url *from = &pull->params.from;
    char path[PATH_SIZE];
    char *query;
    int n;

    snprintf(path, sizeof(path), "/v1/sessions/%s/buffers/%s%s", from->session.s, from->buffer.s,
             ask->data ? "/data" : "");
    query = ticket->make ? ticket->make(ticket->arg, ask->method, path) : NULL;
    n = snprintf(ret->target, sizeof(ret->target), "%s%s%s", path, query ? "?" : "", query ? query : "");
    free(query);
    strcpy(ret->origin, ask->place->origin);
    if (n >= 0 && (size_t)n < sizeof(ret->target))
        return 0;
    return gb_error_set(err, GB_ERR_INTERNAL, "the path of the source has more than %zu bytes", sizeof(ret->target));
}

static bool is_permitted(const struct gb_pull *pull, const char *origin) {
    const struct gb_pull_place *place;
    size_t i;

    for (i = 0; i < pull->params.permitted_count; i++)
        if (strcmp(pull->permitted[i], origin) == 0)
            return true;
    for (place = atomic_load(&pull->place); place; place = place->former)
        if (strcmp(place->origin, origin) == 0)
            return true;
    return false;
}

static enum gb_pull_outcome next_place(struct gb_pull *pull, const char *location, struct place *place,
                                       struct gb_error *err) {
    const char *rest = strstr(location, "://");
    char origin[GB_PULL_ORIGIN_SIZE];
    char url[GB_PULL_ORIGIN_SIZE];

    rest = rest ? strchr(rest + 3, '/') : NULL;
    if (!rest || (size_t)(rest - location) >= sizeof(url)) {
        gb_error_set(err, GB_ERR_SOURCE_REFUSED, "the source %s redirects to no URL of a buffer", place->origin);
        return GB_PULL_FAILED;
    }
    snprintf(url, sizeof(url), "%.*s", (int)(rest - location), location);
    if (gb_pull_origin_read(url, origin, NULL) < 0 || strlen(rest) >= sizeof(place->target)) {
        gb_error_set(err, GB_ERR_SOURCE_REFUSED, "the source %s redirects to no URL of a buffer", place->origin);
        return GB_PULL_FAILED;
    }
    if (!is_permitted(pull, origin)) {
        gb_error_set(err, GB_ERR_SOURCE_NOT_PERMITTED,
                     "the source %s redirects to %s, from which this daemon may not pull: --pull-from permits it",
                     place->origin, origin);
        return gb_pull_may_fail_over(pull) ? GB_PULL_BROKEN
                                           : GB_PULL_FAILED; /* the directory may name that origin, too */
    }
    strcpy(place->origin, origin);
    strcpy(place->target, rest);
    return GB_PULL_OK;
}

/* --- the request -------------------------------------------------------------------------------------------------- */

static int write_request(const struct gb_pull *pull, const struct gb_pull_ask *ask, const struct place *place,
                         char ret[REQUEST_SIZE]) {
    bool home = strcmp(place->origin, pull->params.from.origin) == 0;
    const char *token = home && pull->token ? pull->token : NULL;
    char range[80] = "";

    if (ask->ranged)
        snprintf(range, sizeof(range), "Range: bytes=%" PRIu64 "-%" PRIu64 "\r\n", ask->first, ask->last);
    return snprintf(ret, REQUEST_SIZE,
                    "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\nAccept: %s\r\n%s%s%s%s%s%s%s\r\n", ask->method,
                    place->target, strstr(place->origin, "://") + 3, gb_pulls_agent(pull->fetch.pulls),
                    ask->data ? "application/octet-stream" : "*/*", /* of many tensors the memory, and not their file */
                    token ? "Authorization: Bearer " : "", token ? token : "", token ? "\r\n" : "", range,
                    ask->if_match ? "If-Match: " : "", ask->if_match ? ask->if_match : "", ask->if_match ? "\r\n" : "");
}

/* A kept connection may have been closed meanwhile: then the request is sent over a new one. */
static enum gb_pull_outcome exchange(struct gb_pull_conn *conn, const struct gb_pull_ask *ask,
                                     const struct place *place, struct gb_pull_head *ret, struct gb_error *err) {
    struct gb_error first = GB_ERROR_INIT;
    char request[REQUEST_SIZE];
    enum gb_pull_outcome outcome;
    bool again;
    int n = write_request(conn->pull, ask, place, request);

    if (n < 0 || n >= REQUEST_SIZE) {
        gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the request to the source has more than %d bytes", REQUEST_SIZE);
        return GB_PULL_FAILED;
    }
    do {
        again = conn->open && conn->used && strcmp(conn->origin, place->origin) == 0;
        first = GB_ERROR_INIT;
        outcome = pull_conn_open(conn, place->origin, &first);
        if (outcome == GB_PULL_OK)
            outcome = pull_conn_send(conn, request, (size_t)n, &first);
        if (outcome == GB_PULL_OK)
            outcome = pull_conn_head(conn, ret, &first);
        if (outcome != GB_PULL_OK)
            gb_pull_conn_close(conn);
    } while (outcome == GB_PULL_BROKEN && again);
    if (outcome != GB_PULL_OK)
        gb_error_move(err, &first);
    return outcome;
}

enum gb_pull_outcome gb_pull_request(struct gb_pull_conn *conn, const struct gb_pull_ask *ask, struct gb_pull_head *ret,
                                     struct gb_error *err) {
    enum gb_pull_outcome outcome;
    struct place place;
    unsigned hops;

    if (first_place(conn->pull, ask, &place, err) < 0)
        return GB_PULL_FAILED;
    for (hops = 0;; hops++) {
        outcome = exchange(conn, ask, &place, ret, err);
        if (outcome != GB_PULL_OK || ret->status != 307)
            return outcome;
        gb_pull_conn_close(conn);
        if (hops == HOPS_MAX) {
            gb_error_set(err, GB_ERR_SOURCE_REFUSED, "the source %s was reached by %d redirects, and redirects again",
                         place.origin, HOPS_MAX);
            return GB_PULL_FAILED;
        }
        outcome = next_place(conn->pull, ret->location, &place, err);
        if (outcome != GB_PULL_OK)
            return outcome;
    }
}

/* Reads a body of at most `most` bytes, NUL-terminated, for free(). */
static enum gb_pull_outcome pull_body(struct gb_pull_conn *conn, const struct gb_pull_head *head, size_t most,
                                      char **ret, size_t *ret_n, struct gb_error *err) {
    uint64_t end_ns = gb_clock_ns() + GB_PULL_ANSWER_MS * GB_NS_PER_MS;
    enum gb_pull_outcome outcome = GB_PULL_OK;
    size_t n = 0;
    size_t got;

    if (head->coded || !head->has_length || head->length > most) {
        gb_error_set(err, GB_ERR_SOURCE_REFUSED,
                     "the source %s answers with a body that is chunked, compressed, or larger than %zu bytes",
                     conn->origin, most);
        return GB_PULL_FAILED;
    }
    *ret = malloc((size_t)head->length + 1);
    if (!*ret) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the source's answer");
        return GB_PULL_FAILED;
    }
    while (outcome == GB_PULL_OK && n < head->length) {
        got = 0;
        outcome = pull_conn_in_time(conn, end_ns, err);
        if (outcome == GB_PULL_OK)
            outcome = gb_pull_conn_recv(conn, *ret + n, (size_t)head->length - n, &got, err);
        if (outcome == GB_PULL_OK && got == 0)
            outcome = gb_pull_conn_wait(conn, POLLIN, GB_PULL_STALL_MS, err);
        else if (outcome == GB_PULL_OK)
            n += got;
    }
    if (outcome != GB_PULL_OK) {
        free(*ret);
        gb_pull_conn_close(conn);
        return outcome;
    }
    (*ret)[n] = '\0';
    *ret_n = n;
    if (head->closes)
        gb_pull_conn_close(conn);
    return GB_PULL_OK;
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

/* The members "code" and "detail" of a problem. */
static void read_problem(struct gb_pull_conn *conn, const struct gb_pull_ask *ask, const struct gb_pull_head *head,
                         char ret[256]) {
    char *body = NULL;
    const char *detail = NULL;
    const char *code = NULL;
    json_t *root = NULL;
    size_t n = 0;

    ret[0] = '\0';
    if (strcmp(ask->method, "HEAD") == 0 || pull_body(conn, head, PROBLEM_MAX, &body, &n, NULL) != GB_PULL_OK)
        return;
    root = json_loadb(body, n, 0, NULL);
    json_unpack(root, "{s:s, s:s}", "code", &code, "detail", &detail);
    if (code && detail)
        snprintf(ret, 256, ": %.48s: %.180s", code, detail);
    json_decref(root);
    free(body);
}

static bool is_transient(int status) {
    return status == 408 || status == 425 || status == 429 || status == 500 || (status >= 502 && status <= 504);
}

enum gb_pull_outcome gb_pull_refusal(struct gb_pull_conn *conn, const struct gb_pull_ask *ask,
                                     const struct gb_pull_head *head, struct gb_error *err) {
    char origin[GB_PULL_ORIGIN_SIZE];
    char said[256];

    strcpy(origin, conn->origin);
    read_problem(conn, ask, head, said);
    gb_pull_conn_close(conn);
    if (head->status == 412) {
        gb_error_set(err, GB_ERR_SOURCE_CHANGED, "the source %s has other bytes than those of the entity tag %s",
                     origin, ask->if_match ? ask->if_match : "");
        return GB_PULL_CHANGED;
    }
    gb_error_set(err, is_transient(head->status) ? GB_ERR_SOURCE_UNREACHABLE : GB_ERR_SOURCE_REFUSED,
                 "the source %s answers %s with %d%s", origin, ask->method, head->status, said);
    return is_transient(head->status) ? GB_PULL_BROKEN : GB_PULL_FAILED;
}

/* --- the source's record ------------------------------------------------------------------------------------------ */

#define RECORD_MAX (1u << 20)
#define DESCRIBE_TRIES_MAX 4 /* a writer may replace the buffer between two requests */

/* --- URLs --------------------------------------------------------------------------------------------------------- */

bool gb_pull_url_is(const char *text) {
    return strstr(text, "://") != NULL;
}

static int invalid(const char *text, const char *why, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the URL %.160s %s", text, why);
}

/* Reads http[s]://HOST[:PORT] and the rest. The caller frees ret->path. */
static int read_url(const char *text, struct gb_http_url *ret, struct gb_error *err) {
    int r = strlen(text) > GB_PULL_URL_MAX ? -1 : gb_http_url_read(text, ret);

    if (r == -2)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
    if (r < 0)
        return invalid(text, "is malformed, or has more than 1024 bytes", err);
    if (!ret->user && ret->origin[0] != '\0')
        return 0;
    if (ret->user)
        gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                     "a URL with a name or a password: give the source's token as \"token\" beside the URL");
    else
        invalid(text, "is none of http or https with a host", err);
    free(ret->path);
    return -1;
}

/* /v1/sessions/S/buffers/B */
static bool read_path(const char *path, struct gb_pull_url *ret) {
    static const char sessions[] = "/v1/sessions/";
    static const char buffers[] = "/buffers/";
    const char *session = path + sizeof(sessions) - 1;
    const char *slash;

    if (strncmp(path, sessions, sizeof(sessions) - 1) != 0)
        return false;
    slash = strchr(session, '/');
    if (!slash || strncmp(slash, buffers, sizeof(buffers) - 1) != 0)
        return false;
    path = slash + sizeof(buffers) - 1;
    return gb_name_parse("session", session, (size_t)(slash - session), &ret->session, NULL) == 0 &&
           gb_name_parse("buffer", path, strlen(path), &ret->buffer, NULL) == 0;
}

int gb_pull_url_read(const char *text, struct gb_pull_url *ret, struct gb_error *err) {
    struct gb_http_url url;
    int r = 0;

    *ret = (struct gb_pull_url){.origin = ""};
    if (read_url(text, &url, err) < 0)
        return -1;
    strcpy(ret->origin, url.origin);
    if (url.more || !read_path(url.path, ret))
        r = invalid(text, "names no buffer: give http[s]://HOST[:PORT]/v1/sessions/SESSION/buffers/BUFFER", err);
    free(url.path);
    return r;
}

int gb_pull_origin_read(const char *text, char ret[GB_PULL_ORIGIN_SIZE], struct gb_error *err) {
    struct gb_http_url url;
    int r = 0;

    if (read_url(text, &url, err) < 0)
        return -1;
    strcpy(ret, url.origin);
    if (url.more || strcmp(url.path, "/") != 0)
        r = invalid(text, "has more than http[s]://HOST[:PORT]", err);
    free(url.path);
    return r;
}

/* --- the record --------------------------------------------------------------------------------------------------- */

static int malformed(const char *what, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_SOURCE_REFUSED,
                        "the source answers with no record of a buffer: %s; is it a gpubufd?", what);
}

static int read_shape(const json_t *list, struct gb_pull_source *ret, struct gb_error *err) {
    size_t i;

    if (!json_is_array(list) || json_array_size(list) > GB_DIMS_MAX)
        return malformed("its shape", err);
    ret->shape.dims = (unsigned)json_array_size(list);
    for (i = 0; i < json_array_size(list); i++) {
        json_int_t n = json_integer_value(json_array_get(list, i));

        if (!json_is_integer(json_array_get(list, i)) || n < 0)
            return malformed("its shape", err);
        ret->shape.dim[i] = (uint64_t)n;
    }
    return 0;
}

static int read_labels(const json_t *labels, struct gb_pull_source *ret, struct gb_error *err) {
    char *text;
    int r;

    if (!json_is_object(labels))
        return malformed("its labels", err);
    text = json_dumps(labels, JSON_COMPACT);
    if (!text || strlen(text) >= GB_LABELS_MAX) {
        free(text);
        return malformed("its labels are too long", err);
    }
    r = gb_labels_make(text, &ret->labels, err);
    free(text);
    return r;
}

static int read_members(const json_t *root, struct gb_pull_source *ret, struct gb_error *err) {
    const char *dtype = json_string_value(json_object_get(root, "dtype"));
    json_int_t generation = json_integer_value(json_object_get(root, "generation"));
    json_int_t bytes = json_integer_value(json_object_get(root, "bytes"));
    uint64_t of_shape;

    if (!json_is_integer(json_object_get(root, "bytes")) || bytes < 0)
        return malformed("its bytes", err);
    if (!dtype || gb_dtype_parse(dtype, strlen(dtype), &ret->dtype, NULL) < 0)
        return malformed("its dtype is not known here", err);
    if (read_shape(json_object_get(root, "shape"), ret, err) < 0)
        return -1;
    if (gb_shape_bytes(&ret->shape, ret->dtype, &of_shape, NULL) < 0 || of_shape != (uint64_t)bytes)
        return malformed("its shape and its bytes contradict each other", err);
    ret->bytes = (uint64_t)bytes;
    ret->generation = generation > 0 ? (uint64_t)generation : 0;
    ret->sealed = json_is_true(json_object_get(root, "sealed"));
    return read_labels(json_object_get(root, "labels"), ret, err);
}

int gb_pull_record_read(const char *text, size_t n, struct gb_pull_source *ret, struct gb_error *err) {
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    int r;

    if (!json_is_object(root)) {
        json_decref(root);
        return malformed("it is no JSON object", err);
    }
    r = read_members(root, ret, err);
    json_decref(root);
    return r;
}

/* --- reading it --------------------------------------------------------------------------------------------------- */

static enum gb_pull_outcome look_at_record(struct gb_pull_conn *conn, const struct gb_pull_place *place,
                                           struct gb_pull_source *ret, struct gb_error *err) {
    struct gb_pull_ask ask = {.place = place, .method = "GET"};
    enum gb_pull_outcome outcome;
    struct gb_pull_head head;
    char *body;
    size_t n;
    int r;

    outcome = gb_pull_request(conn, &ask, &head, err);
    if (outcome == GB_PULL_OK && head.status != 200)
        outcome = gb_pull_refusal(conn, &ask, &head, err);
    if (outcome == GB_PULL_OK)
        outcome = pull_body(conn, &head, RECORD_MAX, &body, &n, err);
    if (outcome != GB_PULL_OK)
        return outcome;
    r = gb_pull_record_read(body, n, ret, err);
    free(body);
    return r < 0 ? GB_PULL_FAILED : GB_PULL_OK;
}

/* A refused HEAD has no body: GET shows the reason. */
static enum gb_pull_outcome ask_why(struct gb_pull_conn *conn, const struct gb_pull_place *place,
                                    struct gb_error *err) {
    struct gb_pull_ask ask = {.place = place, .method = "GET", .data = true};
    enum gb_pull_outcome outcome;
    struct gb_pull_head head;

    outcome = gb_pull_request(conn, &ask, &head, err);
    if (outcome == GB_PULL_OK && head.status != 200)
        return gb_pull_refusal(conn, &ask, &head, err);
    gb_pull_conn_close(conn);
    return outcome == GB_PULL_OK ? GB_PULL_CHANGED : outcome;
}

static enum gb_pull_outcome look_at_bytes(struct gb_pull_conn *conn, const struct gb_pull_place *place,
                                          struct gb_pull_source *ret, struct gb_error *err) {
    struct gb_pull_ask ask = {.place = place, .method = "HEAD", .data = true};
    enum gb_pull_outcome outcome;
    struct gb_pull_head head;

    outcome = gb_pull_request(conn, &ask, &head, err);
    if (outcome != GB_PULL_OK)
        return outcome;
    if (head.closes)
        gb_pull_conn_close(conn);
    if (head.status != 200)
        return ask_why(conn, place, err);
    if (head.tag[0] == '\0' || !head.has_length || head.coded) {
        malformed("its bytes have no entity tag, or no length", err);
        return GB_PULL_FAILED;
    }
    if (head.length != ret->bytes || !head.has_generation || head.generation != ret->generation)
        return GB_PULL_CHANGED;
    strcpy(ret->tag, head.tag);
    ret->has_crc32c = head.has_crc32c;
    ret->crc32c = head.crc32c;
    ret->registered = head.registered;
    return GB_PULL_OK;
}

enum gb_pull_outcome gb_pull_describe(struct gb_pull_conn *conn, const struct gb_pull_place *place,
                                      struct gb_pull_source *ret, struct gb_error *err) {
    enum gb_pull_outcome outcome = GB_PULL_CHANGED;
    unsigned tries;

    for (tries = 0; tries < DESCRIBE_TRIES_MAX && outcome == GB_PULL_CHANGED; tries++) {
        gb_text_unref(ret->labels);
        *ret = (struct gb_pull_source){.bytes = 0};
        outcome = look_at_record(conn, place, ret, err);
        if (outcome == GB_PULL_OK)
            outcome = look_at_bytes(conn, place, ret, err);
    }
    if (outcome == GB_PULL_CHANGED)
        gb_error_set(err, GB_ERR_SOURCE_CHANGED, "the source %s is replaced faster than it can be looked at",
                     place->origin);
    return outcome;
}

bool gb_pull_same_bytes(const struct gb_pull_source *a, const struct gb_pull_source *b, bool has_digest) {
    if (!a->sealed || !b->sealed || a->bytes != b->bytes || a->dtype != b->dtype ||
        !gb_shape_equal(&a->shape, &b->shape))
        return false;
    return a->has_crc32c && b->has_crc32c ? a->crc32c == b->crc32c : has_digest;
}
