/* One request to a source, with its redirects, and what a refusal comes to. */
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "pull/internal.h"

#define HOPS_MAX 3
#define REQUEST_SIZE 8192
#define PROBLEM_MAX 16384
#define PATH_SIZE (2 * GB_NAME_MAX + 64)

/* Where a request goes: at first the source, then where that sends it. */
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
        return gb_pull_may_leave(pull) ? GB_PULL_BROKEN : GB_PULL_FAILED; /* the directory may name that one as well */
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
                    "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\nAccept: */*\r\n%s%s%s%s%s%s%s\r\n", ask->method,
                    place->target, strstr(place->origin, "://") + 3, pull->pulls->agent,
                    token ? "Authorization: Bearer " : "", token ? token : "", token ? "\r\n" : "", range,
                    ask->if_match ? "If-Match: " : "", ask->if_match ? ask->if_match : "", ask->if_match ? "\r\n" : "");
}

/* A connection that was kept may have been closed meanwhile: the request goes over a new one then. */
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
        again = conn->easy && conn->used && strcmp(conn->origin, place->origin) == 0;
        first = GB_ERROR_INIT;
        outcome = gb_pull_conn_open(conn, place->origin, &first);
        if (outcome == GB_PULL_OK)
            outcome = gb_pull_conn_send(conn, request, (size_t)n, &first);
        if (outcome == GB_PULL_OK)
            outcome = gb_pull_conn_head(conn, ret, &first);
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

enum gb_pull_outcome gb_pull_body(struct gb_pull_conn *conn, const struct gb_pull_head *head, size_t most, char **ret,
                                  size_t *ret_n, struct gb_error *err) {
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
        outcome = gb_pull_conn_in_time(conn, end_ns, err);
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
    if (strcmp(ask->method, "HEAD") == 0 || gb_pull_body(conn, head, PROBLEM_MAX, &body, &n, NULL) != GB_PULL_OK)
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

bool gb_pull_again(const struct gb_pull *pull, struct gb_pull_patience *patience, unsigned retry_after_s) {
    static const int delays_ms[] = {200, 500, 1000, 2000, 4000};
    size_t last = sizeof(delays_ms) / sizeof(delays_ms[0]) - 1;
    int ms = delays_ms[patience->failures < last ? patience->failures : last];

    if (patience->failures++ >= patience->most + patience->more)
        return false;
    if (retry_after_s > 0 && ms < (int)(retry_after_s < 10 ? retry_after_s : 10) * 1000)
        ms = (int)(retry_after_s < 10 ? retry_after_s : 10) * 1000;
    return gb_pull_poll(pull, -1, 0, ms) == 0;
}
