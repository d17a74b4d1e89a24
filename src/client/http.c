/* One connection: a request, where a fleet's nodes redirect it, its reply, and again where that may be. A request
 * is repeated if it was not carried out, or if its outcome is unknown and it is idempotent (may_repeat).
 * curl/request.h moves the bytes; here is what they mean for gpubufd. transfer.c, feed.c and client.c call
 * gbc_perform(). */
#include "client/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <grp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/encoding.h"
#include "client/epochs.h"
#include "client/trust.h"
#include "curl/request.h"

#define POLL_MS 100 /* how soon an interruption is seen, and how often tick is called */
#define PAUSE_FIRST_MS 50
#define PAUSE_MAX_MS 2000
#define RETRY_AFTER_MAX_S 10
#define REDIRECTED 1 /* of an attempt */
#define HOPS_MAX 3
#define GROUP_BYTES 4096
#define AT_ONCE_BYTES (1u << 20)    /* as many bytes cost less than a round trip */
#define BODY_MAX ((size_t)64 << 20) /* of an answer that is kept in memory */

struct gbc_conn {
    struct gbc_settings *set;
    struct gb_http_client *client;
    struct gb_http_tls tls;
    struct gb_http_ask ask;      /* of the attempt that runs, or of the last one */
    struct gbc_request *request; /* of the same */
    struct gbc_reply reply;
    struct gpubuf_error inner; /* of callbacks */
    uint64_t moved_ms;         /* when something came or went last */
    uint64_t body_at;          /* bytes of the body that were taken */
    bool sent;                 /* all of the request */
    bool answered;             /* the header of the answer is whole */
    bool ended;
    struct gbc_text hop;    /* the URL to which a node of a fleet sent the request; empty: the client's own daemon */
    struct gbc_text origin; /* "http[s]://HOST[:PORT]" of it */
    unsigned hops;
};

struct gbc_conn *gbc_conn_new(struct gbc_settings *set, struct gpubuf_error *err) {
    struct gbc_conn *conn = calloc(1, sizeof(*conn));

    if (!conn) {
        gbc_error_memory(err);
        return NULL;
    }
    conn->set = set;
    conn->tls = (struct gb_http_tls){.ca = set->cacert, .ca_alone = true, .cert = set->cert, .key = set->key};
    conn->tls.ca_text = set->ca_text;
    conn->tls.ca_bytes = set->ca_bytes;
    conn->client = gb_http_client_new(NULL, true);
    if (!conn->client) {
        gbc_conn_free(conn);
        gbc_error_memory(err);
        return NULL;
    }
    return conn;
}

void gbc_conn_free(struct gbc_conn *conn) {
    if (!conn)
        return;
    gb_http_client_free(conn->client);
    gbc_reply_done(&conn->reply);
    gbc_text_done(&conn->hop);
    gbc_text_done(&conn->origin);
    free(conn);
}

struct gbc_reply *gbc_reply_of(struct gbc_conn *conn) {
    return &conn->reply;
}

double gbc_took_ms(const struct gbc_conn *conn) {
    return conn->ask.took_ms;
}

/* --- the headers of answers --------------------------------------------------------------------------------------- */

/* Keeps the texts' memory. */
static void reply_clear(struct gbc_reply *reply) {
    struct gbc_reply kept = *reply;

    memset(reply, 0, sizeof(*reply));
    reply->body = kept.body;
    reply->type = kept.type;
    reply->location = kept.location;
    gbc_text_clear(&reply->body);
    gbc_text_clear(&reply->type);
    gbc_text_clear(&reply->location);
}

void gbc_reply_done(struct gbc_reply *reply) {
    gbc_text_done(&reply->body);
    gbc_text_done(&reply->type);
    gbc_text_done(&reply->location);
}

static struct gpubuf_opt decimal(const char *text) {
    struct gpubuf_opt none = {false, 0};
    char *end;
    uint64_t value;

    if (*text < '0' || *text > '9')
        return none;
    value = strtoull(text, &end, 10);
    return *end == '\0' || *end == '-' || *end == '/' ? gpubuf_some(value) : none;
}

static struct gpubuf_opt hexadecimal(const char *text) {
    struct gpubuf_opt none = {false, 0};
    uint32_t value;

    return gb_hex_u32(text, strlen(text), &value) ? gpubuf_some(value) : none;
}

/* bytes 0-10/16508 */
static void content_range(struct gbc_reply *reply, const char *value) {
    const char *slash = strchr(value, '/');

    if (strncasecmp(value, "bytes ", 6) != 0 || !slash)
        return;
    reply->range_first = decimal(value + 6);
    reply->whole = decimal(slash + 1);
}

/* "requests";r=0;t=1: of the bounds of a client only rates pass by themselves. */
static bool names_rate(const char *value) {
    return strncmp(value, "\"requests\"", 10) == 0 || strncmp(value, "\"bytes\"", 7) == 0;
}

static void take(struct gbc_reply *reply, const char *name, const char *value) {
    if (strcasecmp(name, "Content-Type") == 0)
        gbc_text_add(&reply->type, value, strlen(value));
    else if (strcasecmp(name, "Location") == 0)
        gbc_text_add(&reply->location, value, strlen(value));
    else if (strcasecmp(name, "ETag") == 0)
        gbc_copy(reply->etag, sizeof(reply->etag), value);
    else if (strcasecmp(name, "Content-Length") == 0)
        reply->length = decimal(value);
    else if (strcasecmp(name, "Content-Range") == 0)
        content_range(reply, value);
    else if (strcasecmp(name, "Server-Timing") == 0)
        gbc_copy(reply->timing, sizeof(reply->timing), value);
    else if (strcasecmp(name, "Gpubuf-Dtype") == 0)
        gbc_copy(reply->dtype, sizeof(reply->dtype), value);
    else if (strcasecmp(name, "Gpubuf-Shape") == 0)
        gbc_copy(reply->shape, sizeof(reply->shape), value);
    else if (strcasecmp(name, "Gpubuf-Generation") == 0)
        reply->generation = decimal(value);
    else if (strcasecmp(name, "Gpubuf-Crc32c") == 0)
        reply->crc32c = hexadecimal(value);
    else if (strcasecmp(name, "Gpubuf-Epoch") == 0)
        reply->epoch = decimal(value);
    else if (strcasecmp(name, "Upload-Offset") == 0)
        reply->upload_offset = decimal(value);
    else if (strcasecmp(name, "Upload-Complete") == 0)
        reply->upload_complete = strcmp(value, "?1") == 0;
    else if (strcasecmp(name, "Retry-After") == 0)
        reply->retry_after_s = atoi(value);
    else if (strcasecmp(name, "RateLimit") == 0)
        reply->rate_limited = names_rate(value);
}

void gbc_reply_line(struct gbc_reply *reply, const char *line, size_t bytes, bool *ret_end) {
    char text[8192]; /* a Location has a name, a query and a ticket */
    char *colon;

    while (bytes > 0 && (line[bytes - 1] == '\r' || line[bytes - 1] == '\n' || line[bytes - 1] == ' '))
        bytes--;
    if (bytes == 0) {
        *ret_end = reply->status >= 200;
        return;
    }
    if (bytes >= sizeof(text)) /* ours are shorter */
        return;
    memcpy(text, line, bytes);
    text[bytes] = '\0';
    if (strncmp(text, "HTTP/", 5) == 0) {
        const char *blank = strchr(text, ' ');

        reply_clear(reply);
        reply->status = blank ? atoi(blank + 1) : 0;
        return;
    }
    colon = strchr(text, ':');
    if (!colon)
        return;
    *colon++ = '\0';
    take(reply, text, colon + strspn(colon, " \t"));
}

/* --- redirects within a fleet: a node that does not have the session names the one that has it -------------------- */

/* Bytes of "http[s]://HOST[:PORT]" at the start of a URL; 0: it is not one. */
static size_t origin_bytes(const char *url) {
    const char *host = strncmp(url, "http://", 7) == 0 ? url + 7 : strncmp(url, "https://", 8) == 0 ? url + 8 : NULL;
    size_t n = host ? strcspn(host, "/?#") : 0;

    return n > 0 && !memchr(host, '@', n) ? (size_t)(host - url) + n : 0;
}

static bool redirect_is(const struct gbc_reply *reply) {
    const char *location = reply->location.bytes > 0 ? reply->location.data : "";
    const char *query = strchr(location, '?');

    return reply->status == 307 && query && (strncmp(query, "?via=", 5) == 0 || strstr(query, "&via=")) &&
           origin_bytes(location) > 0;
}

static const char *origin_of(const struct gbc_conn *conn) {
    return conn->origin.bytes > 0 ? conn->origin.data : conn->set->url;
}

static bool is_away(const struct gbc_conn *conn) {
    return conn->origin.bytes > 0 && (conn->set->socket || strcmp(conn->origin.data, conn->set->base) != 0);
}

static void go_home(struct gbc_conn *conn) {
    gbc_text_clear(&conn->hop);
    gbc_text_clear(&conn->origin);
    conn->hops = 0;
}

/* What was read of the body is read again. */
static int rewind_body(struct gbc_conn *conn, const char *origin, int bytes, struct gpubuf_error *err) {
    const struct gbc_up *up = conn->request->up;

    if (!up || (up->rewind && up->rewind(up->arg) == 0))
        return 0;
    return gbc_error_set(err, GPUBUF_INPUT_FAILED,
                         "the session is at another node, and what was read of a pipe cannot be sent again: give a "
                         "file, or ask %.*s itself",
                         bytes, origin);
}

static int take_redirect(struct gbc_conn *conn, struct gpubuf_error *err) {
    const char *location = conn->reply.location.data;
    size_t bytes = origin_bytes(location);

    if (conn->hops == HOPS_MAX)
        return gbc_error_set(err, GPUBUF_OWNER_UNKNOWN,
                             "the nodes of the fleet redirect more than %d times, at last to %.*s", HOPS_MAX,
                             (int)bytes, location);
    if ((conn->set->tls || (conn->origin.bytes > 0 && strncmp(conn->origin.data, "https:", 6) == 0)) &&
        strncmp(location, "https:", 6) != 0)
        return gbc_error_set(err, GPUBUF_BAD_ANSWER,
                             "%s redirects out of TLS, to %.*s, which is not followed: the nodes of the fleet are to "
                             "advertise addresses of https",
                             origin_of(conn), (int)bytes, location);
    if (rewind_body(conn, location, (int)bytes, err) < 0)
        return -1;
    gbc_text_clear(&conn->hop);
    gbc_text_clear(&conn->origin);
    gbc_text_add(&conn->hop, location, strlen(location));
    gbc_text_add(&conn->origin, location, bytes);
    conn->hops++;
    return conn->hop.failed || conn->origin.failed ? gbc_error_memory(err) : 0;
}

/* --- what comes and goes ------------------------------------------------------------------------------------------ */

static bool on_header(void *arg, const char *line, size_t bytes) {
    struct gbc_conn *conn = arg;
    const struct gbc_down *down = conn->request->down;
    bool end = false;

    conn->moved_ms = gbc_now_ms();
    gbc_reply_line(&conn->reply, line, bytes, &end);
    if (!end || conn->answered)
        return true;
    conn->answered = true;
    return !down || conn->reply.status >= 300 || down->begin(down->arg, &conn->reply, &conn->inner) == 0;
}

static bool on_write(void *arg, const char *data, size_t bytes) {
    struct gbc_conn *conn = arg;
    const struct gbc_down *down = conn->request->down;

    conn->moved_ms = gbc_now_ms();
    if (down && conn->reply.status < 300)
        return down->write(down->arg, data, bytes, &conn->inner) == 0;
    if (conn->reply.body.bytes + bytes > BODY_MAX) {
        gbc_error_set(&conn->inner, GPUBUF_BAD_ANSWER, "an answer of more than %zu MiB", BODY_MAX >> 20);
        return false;
    }
    gbc_text_add(&conn->reply.body, data, bytes);
    return !conn->reply.body.failed;
}

static uint64_t body_bytes(const struct gbc_request *request) {
    if (request->up)
        return request->up->bytes;
    return request->body ? request->body_bytes : request->json.bytes;
}

static size_t memory_read(struct gbc_conn *conn, const char *body, size_t all, char *data, size_t room) {
    size_t at = (size_t)conn->body_at;
    size_t n = all - at < room ? all - at : room;

    memcpy(data, body + at, n);
    return n;
}

static ssize_t on_read(void *arg, char *data, size_t room) {
    struct gbc_conn *conn = arg;
    struct gbc_request *request = conn->request;
    int64_t n;

    conn->moved_ms = gbc_now_ms();
    if (request->up)
        n = request->up->read(request->up->arg, data, room, &conn->inner);
    else if (request->body)
        n = (int64_t)memory_read(conn, request->body, request->body_bytes, data, room);
    else
        n = (int64_t)memory_read(conn, request->json.data, request->json.bytes, data, room);
    if (n < 0)
        return -1;
    conn->body_at += (uint64_t)n;
    conn->sent = n == 0 || conn->body_at == body_bytes(request);
    return (ssize_t)n;
}

/* What was sent over a connection that turned out to be closed is sent again. */
static bool on_rewind(void *arg) {
    struct gbc_conn *conn = arg;
    const struct gbc_up *up = conn->request->up;

    conn->body_at = 0;
    conn->sent = false;
    return !up || (up->rewind && up->rewind(up->arg) == 0);
}

static void on_end(struct gb_http_ask *ask) {
    ((struct gbc_conn *)ask->arg)->ended = true;
}

/* --- addresses ---------------------------------------------------------------------------------------------------- */

/* A name may begin with 127. and lie anywhere: only addresses count, and the one name that stays on the machine. */
bool gbc_is_loopback(const char *url) {
    const char *host = strstr(url, "://") + 3;
    size_t n = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, "/:?");
    unsigned char address[4];
    char text[64];

    if (n >= sizeof(text))
        return false;
    memcpy(text, host, n);
    text[n] = '\0';
    if (inet_pton(AF_INET, text, address) == 1)
        return address[0] == 127;
    return strcmp(text, "[::1]") == 0 || strcasecmp(text, "localhost") == 0;
}

/* --- a socket that refuses ---------------------------------------------------------------------------------------- */

/* "998 (gpubuf)", or the number alone where it has no name here. */
static void group_text(gid_t gid, char *ret, size_t size) {
    char room[GROUP_BYTES];
    struct group group;
    struct group *found = NULL;

    if (getgrgid_r(gid, &group, room, sizeof(room), &found) == 0 && found)
        snprintf(ret, size, "%u (%s)", (unsigned)gid, group.gr_name);
    else
        snprintf(ret, size, "%u", (unsigned)gid);
}

/* The first folder on the way that this process may not search; false: it may search all. */
static bool closed_folder(const char *path, char *ret, size_t size) {
    const char *at = path;

    while ((at = strchr(at + 1, '/'))) {
        snprintf(ret, size, "%.*s", (int)(at - path), path);
        if (access(ret, X_OK) != 0)
            return true;
    }
    return false;
}

void gbc_socket_refusal(const char *path, char *ret, size_t size) {
    char folder[256];
    char group[64];
    struct stat st;

    if (closed_folder(path, folder, sizeof(folder))) {
        if (stat(folder, &st) < 0) {
            snprintf(ret, size, "user %u may not search the folder %s", (unsigned)geteuid(), folder);
            return;
        }
        group_text(st.st_gid, group, sizeof(group));
        snprintf(ret, size,
                 "user %u may not search the folder %s, of mode %04o, user %u and group %s: put the socket elsewhere "
                 "(gpubufd --socket PATH), or open the folder",
                 (unsigned)geteuid(), folder, (unsigned)(st.st_mode & 07777), (unsigned)st.st_uid, group);
        return;
    }
    if (stat(path, &st) < 0) {
        snprintf(ret, size, "user %u may not reach it", (unsigned)geteuid());
        return;
    }
    group_text(st.st_gid, group, sizeof(group));
    snprintf(ret, size,
             "it is of mode %04o, user %u and group %s, and this is user %u, who needs the right to write: join the "
             "group, or start gpubufd with --socket-group and --socket-mode",
             (unsigned)(st.st_mode & 07777), (unsigned)st.st_uid, group, (unsigned)geteuid());
}

/* --- one attempt -------------------------------------------------------------------------------------------------- */

/* libcurl asks by Expect: 100-continue before it sends a body, and waits a second for the answer. What cannot be read
 * again is sent only to a server that takes it: a refusal may be followed by another attempt, or lead to another
 * node. */
static bool goes_at_once(const struct gbc_request *request) {
    return body_bytes(request) <= AT_ONCE_BYTES && (!request->up || request->up->again);
}

/* A header that may be long. */
static void add_header(struct gbc_conn *conn, const char *begin, const char *value) {
    struct gbc_text line = {.data = NULL};

    gbc_text_addf(&line, "%s%s", begin, value);
    gb_http_ask_header(&conn->ask, line.failed ? NULL : line.data);
    gbc_text_done(&line);
}

static void add_headers(struct gbc_conn *conn) {
    const struct gbc_request *request = conn->request;
    uint64_t epoch = gbc_epochs_of(conn->set->epochs, request->target.data);
    char line[48];
    size_t at;

    for (at = 0; at < request->headers.bytes; at += strlen(request->headers.data + at) + 1) {
        if (strncasecmp(request->headers.data + at, "Gpubuf-Epoch:", 13) == 0)
            epoch = 0; /* the caller of gpubuf_request() gives another */
        gb_http_ask_header(&conn->ask, request->headers.data + at);
    }
    snprintf(line, sizeof(line), "Gpubuf-Epoch: %llu", (unsigned long long)epoch);
    if (epoch > 0)
        gb_http_ask_header(&conn->ask, line);
    if (goes_at_once(request))
        gb_http_ask_header(&conn->ask, "Expect:"); /* none is sent; the caller's own, above, is */
    if (conn->set->token && !is_away(conn))
        add_header(conn, "Authorization: Bearer ", conn->set->token);
    if (request->json.bytes > 0)
        gb_http_ask_header(&conn->ask, "Content-Type: application/json");
    else if (request->body_type)
        add_header(conn, "Content-Type: ", request->body_type);
}

static int start(struct gbc_conn *conn, struct gpubuf_error *err) {
    const struct gbc_settings *set = conn->set;
    const struct gbc_request *request = conn->request;
    bool head = strcmp(request->method, "HEAD") == 0;
    bool bare = head || (!request->up && !request->body && request->json.bytes == 0 &&
                         (strcmp(request->method, "GET") == 0 || strcmp(request->method, "DELETE") == 0));
    struct gbc_text url = {.data = NULL};
    int r;

    if (conn->hops > 0)
        gbc_text_add(&url, conn->hop.data, conn->hop.bytes);
    else
        gbc_text_addf(&url, "%s%s", set->base, request->target.data);
    conn->body_at = 0;
    conn->sent = bare || body_bytes(request) == 0;
    conn->ask =
        (struct gb_http_ask){.method = request->method, .url = url.data, .agent = set->agent, .tls = &conn->tls};
    conn->ask.took_ms = -1;
    if (url.failed)
        return gbc_error_memory(err);
    conn->ask.socket = conn->hops == 0 ? set->socket : NULL;
    conn->ask.proxied = conn->hops > 0 ? !gbc_is_loopback(url.data) : !set->local;
    conn->ask.http1 = true;
    conn->ask.large = true;
    conn->ask.connect_ms = (unsigned)set->connect_ms;
    conn->ask.read = bare ? NULL : on_read;
    conn->ask.rewind = on_rewind;
    conn->ask.read_bytes = body_bytes(request);
    conn->ask.header = on_header;
    conn->ask.write = on_write;
    conn->ask.arg = conn;
    conn->ask.done = on_end;
    add_headers(conn);
    r = gb_http_client_start(conn->client, &conn->ask);
    gbc_text_done(&url);
    return r < 0 ? gbc_error_memory(err) : 0;
}
static int interrupted(struct gbc_conn *conn, struct gpubuf_error *err) {
    struct gbc_request *request = conn->request;

    if (request->even_so)
        return 0;
    if (atomic_load(&conn->set->interrupted))
        return gbc_error_set(err, GPUBUF_INTERRUPTED, "gpubuf_interrupt() asked for it");
    if (request->tick && request->tick(request->tick_arg) != 0)
        return gbc_error_set(err, GPUBUF_INTERRUPTED, "the progress callback asked for it");
    return 0;
}

static int overdue(struct gbc_conn *conn, struct gpubuf_error *err) {
    const struct gbc_settings *set = conn->set;
    uint64_t since = gbc_now_ms() - conn->moved_ms;

    if (conn->sent && !conn->answered) {
        if (since >= set->answer_ms + conn->request->wait_s * (uint64_t)1000)
            return gbc_error_set(err, GPUBUF_CLIENT_TIMEOUT, "no answer within %llu s of the request",
                                 (unsigned long long)(since / 1000));
    } else if (since >= set->stall_ms + set->connect_ms + conn->request->quiet_ms) {
        return gbc_error_set(err, GPUBUF_CLIENT_TIMEOUT, "nothing moved for %llu s",
                             (unsigned long long)(since / 1000));
    }
    return 0;
}

/* Runs it to its end: 0, or -1 with err. */
static int run(struct gbc_conn *conn, struct gpubuf_error *err) {
    uint64_t look_ms = 0;
    unsigned wait_ms = 0; /* what can be sent is sent first */

    while (!conn->ended) {
        if (gbc_now_ms() >= look_ms) {
            if (interrupted(conn, err) < 0 || overdue(conn, err) < 0)
                return -1;
            look_ms = gbc_now_ms() + POLL_MS;
        }
        if (!gb_http_client_run(conn->client, wait_ms) && !conn->ended)
            return gbc_error_set(err, GPUBUF_NO_MEMORY, "libcurl cannot go on");
        wait_ms = POLL_MS;
    }
    return 0;
}

/* No daemon listens, or it refuses the connection: for a UNIX socket the reason is known. */
static int unreached(struct gbc_conn *conn, const char *said, struct gpubuf_error *err) {
    int number = conn->set->socket && conn->hops == 0 ? conn->ask.os_errno : 0;
    char why[GBC_REFUSAL_SIZE];

    if (number == EACCES || number == EPERM) {
        gbc_socket_refusal(conn->set->socket, why, sizeof(why));
        said = why;
    } else if (number != 0 && strerrordesc_np(number)) { /* libcurl speaks of a host and a port */
        said = strerrordesc_np(number);
    }
    return gbc_error_set(err, GPUBUF_CANNOT_CONNECT, "%s cannot be reached: %s", origin_of(conn), said);
}

/* Nothing that is HTTP came on a new connection. */
static bool speechless(const struct gbc_conn *conn, bool last) {
    if (conn->reply.status != 0 || conn->answered || conn->ask.connects == 0)
        return false;
    return conn->ask.outcome == GB_HTTP_NO_HTTP || (conn->ask.outcome == GB_HTTP_LOST && (conn->set->tls || last));
}

/* Returns -1 with TLS_FAILED if TLS, its certificates or the scheme of the URL are the cause; 0 otherwise. last: no
 * further attempt will be made; before that, http that was cut off may pass and is not examined. */
static int explain(const struct gbc_conn *conn, bool last, const char *said, struct gpubuf_error *err) {
    bool certain = conn->ask.outcome == GB_HTTP_TLS;

    if (is_away(conn) || (!certain && !speechless(conn, last)))
        return 0;
    return conn->set->tls ? gbc_trust_explain(conn->set, certain, false, said, err)
                          : gbc_trust_explain_plain(conn->set, err);
}

/* After an answer of 400: the same for a URL of http and a listener of TLS, and for a proxy that wants a client's
 * certificate. */
static int explain_400(const struct gbc_conn *conn, struct gpubuf_error *err) {
    const char *type = conn->reply.type.bytes > 0 ? conn->reply.type.data : "";
    const char *body = conn->reply.body.bytes > 0 ? conn->reply.body.data : "";
    bool told = strcasestr(body, "certificate") != NULL;

    if (is_away(conn) || (strstr(type, "json") && (conn->set->tls || !strstr(body, "malformed_request"))))
        return 0;
    if (conn->set->tls)
        return told ? gbc_trust_explain(conn->set, false, true, "", err) : 0;
    return gbc_trust_explain_plain(conn->set, err);
}

static int failed(struct gbc_conn *conn, struct gpubuf_error *err) {
    const char *url = origin_of(conn);
    const char *said = conn->ask.said;

    if (conn->inner.code != GPUBUF_OK) {
        if (err && err->code == GPUBUF_OK)
            *err = conn->inner;
        return -1;
    }
    if (explain(conn, false, said, err) < 0)
        return -1;
    switch (conn->ask.outcome) {
    case GB_HTTP_UNREACHABLE:
        return unreached(conn, said, err);
    case GB_HTTP_TIMED_OUT:
        return gbc_error_set(err, conn->sent || conn->answered ? GPUBUF_CLIENT_TIMEOUT : GPUBUF_CANNOT_CONNECT,
                             "%s: %s", url, said);
    case GB_HTTP_LOST:
        return gbc_error_set(err, GPUBUF_CONNECTION_LOST, "the connection to %s ended before the answer did: %s", url,
                             said);
    case GB_HTTP_TLS:
        return gbc_error_set(err, GPUBUF_TLS_FAILED, "no connection by TLS (1.2 at least) to %s: %s", url, said);
    case GB_HTTP_NO_MEMORY:
        return gbc_error_memory(err);
    case GB_HTTP_BAD_URL:
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "%s: %s", url, said);
    default:
        return gbc_error_set(err, GPUBUF_BAD_ANSWER, "%s: %s", url, said);
    }
}

/* A gpubufd gives none but within a fleet. To follow one could take the token to another host, or out of TLS. */
static int redirected(struct gbc_conn *conn, struct gpubuf_error *err) {
    const char *to = conn->reply.location.bytes > 0 ? conn->reply.location.data : "nowhere";

    return gbc_error_set(err, GPUBUF_BAD_ANSWER,
                         "%s redirects to %.256s (status %d), which is not followed: give the daemon's own address",
                         origin_of(conn), to, conn->reply.status);
}

/* While there are tokens, the paths from /v1 on need one. */
static bool is_guarded(const struct gbc_request *request) {
    return strncmp(request->target.data, "/v1", 3) == 0;
}

/* An earlier request of this client was let in, perhaps the first half of this one. */
static int token_ended(const struct gbc_conn *conn, struct gpubuf_error *err) {
    const struct gbc_text *body = &conn->reply.body;
    struct gpubuf_error why;
    char said[256];

    gbc_error_init(&why);
    gbc_error_problem(&why, conn->reply.status, body->failed ? NULL : body->data, body->failed ? 0 : body->bytes);
    if (why.code == GPUBUF_UNAUTHENTICATED) {
        gbc_copy(said, sizeof(said), why.detail);
        snprintf(why.detail, sizeof(why.detail),
                 "the token, which the daemon accepted before, ended while it was in use: %s", said);
    }
    if (err && err->code == GPUBUF_OK)
        *err = why;
    return -1;
}

static int judge(struct gbc_conn *conn, struct gpubuf_error *err) {
    const struct gbc_text *body = &conn->reply.body;

    if (conn->reply.status < 100)
        return gbc_error_set(err, GPUBUF_BAD_ANSWER, "%s gave no HTTP status", origin_of(conn));
    if (conn->reply.status != 400)
        atomic_store(&conn->set->spoken, 1);
    if (conn->reply.status >= 300 && conn->reply.status < 400 && conn->reply.status != 304)
        return redirected(conn, err);
    if (conn->reply.status < 400)
        return body->failed ? gbc_error_memory(err) : 0;
    if (conn->reply.status == 401 && atomic_load(&conn->set->let_in) && !is_away(conn))
        return token_ended(conn, err);
    if (conn->reply.status == 400 && explain_400(conn, err) < 0)
        return -1;
    gbc_error_problem(err, conn->reply.status, body->failed ? NULL : body->data, body->failed ? 0 : body->bytes);
    if (err)
        err->retry_after_s = conn->reply.retry_after_s;
    return -1;
}

static int attempt(struct gbc_conn *conn, struct gbc_request *request, struct gpubuf_error *err) {
    int r;

    conn->request = request;
    conn->moved_ms = gbc_now_ms();
    conn->answered = false;
    conn->ended = false;
    gbc_error_init(&conn->inner);
    reply_clear(&conn->reply);
    if (start(conn, err) < 0)
        return -1;
    r = run(conn, err);
    gb_http_client_cancel(&conn->ask); /* where it has not ended */
    if (conn->answered && conn->reply.status < 400 && conn->set->token && is_guarded(request))
        atomic_store(&conn->set->let_in, 1);
    if (r < 0)
        return -1;
    if (conn->answered && redirect_is(&conn->reply))
        r = REDIRECTED;
    else
        r = conn->ask.outcome == GB_HTTP_OK ? judge(conn, err) : failed(conn, err);
    if (conn->answered)
        gbc_epochs_answer(conn->set->epochs, request->method, request->target.data, &conn->reply,
                          r < 0 ? err->code : GPUBUF_OK);
    return r;
}
/* --- and again ---------------------------------------------------------------------------------------------------- */

/* A daemon's 429: a rate passes. Another bound passes when the client ends something, and a further guess of the token
 * only makes the wait longer. The answer to HEAD does not say whose it is. */
static bool may_pass(const struct gbc_conn *conn, const struct gpubuf_error *why) {
    bool named = why->code == GPUBUF_TOO_MANY_REQUESTS || strcmp(conn->request->method, "HEAD") == 0;

    return conn->reply.rate_limited || !named;
}

/* What passes, and not within seconds. */
static bool takes_long(int code) {
    return code == GPUBUF_TIMED_OUT || code == GPUBUF_NOT_LOADED || code == GPUBUF_OWNER_ABSENT ||
           code == GPUBUF_NODE_UNREACHABLE;
}

/* It may have been carried out. An owner that became uncertain says so in place of the answer to a change. */
static bool is_unknown(const struct gpubuf_error *why) {
    return why->code == GPUBUF_CONNECTION_LOST || why->code == GPUBUF_OWNER_UNCERTAIN;
}

/* The request was not carried out and may succeed later, or its outcome is unknown and it is idempotent. A load is
 * waited for in another way: put.c asks for it. */
static bool may_repeat(const struct gbc_conn *conn, const struct gpubuf_error *why) {
    const struct gbc_request *request = conn->request;
    bool reads = strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0;
    bool writes = strcmp(request->method, "PUT") == 0 || strcmp(request->method, "DELETE") == 0;

    if (request->once)
        return false;
    if (why->code == GPUBUF_CANNOT_CONNECT || why->code == GPUBUF_TICKET_INVALID)
        return true;
    if (!reads && !writes && !request->keyed)
        return false;
    if (why->status == 429 && !may_pass(conn, why))
        return false;
    if (is_unknown(why))
        return reads || request->keyed || !request->conditional;
    if (why->status == 503 || why->status == 429)
        return why->retryable && !takes_long(why->code);
    return false;
}

static bool rewound(struct gbc_request *request) {
    if (request->up && (!request->up->rewind || request->up->rewind(request->up->arg) < 0))
        return false;
    return !request->again || request->again(request) == 0;
}

int gbc_pause(struct gbc_conn *conn, uint64_t ms, struct gpubuf_error *err) {
    uint64_t end = gbc_now_ms() + ms;

    for (;;) {
        uint64_t now = gbc_now_ms();

        if (interrupted(conn, err) < 0)
            return -1;
        if (now >= end)
            return 0;
        gb_http_client_pause(conn->client, end - now < POLL_MS ? (int)(end - now) : POLL_MS);
    }
}

static void trace(struct gbc_conn *conn, const struct gbc_request *request, uint64_t began_ms,
                  const struct gpubuf_error *why) {
    struct gbc_text line = {.data = NULL};

    if (!conn->set->trace || request->mute)
        return;
    /* A URL of another node has a ticket in it: it is left out. */
    gbc_text_addf(&line, "%s %s%s -> ", request->method, conn->hops > 0 ? conn->origin.data : "", request->target.data);
    if (conn->reply.status > 0)
        gbc_text_addf(&line, "%d", conn->reply.status);
    if (why->code != GPUBUF_OK)
        gbc_text_addf(&line, "%s%s", conn->reply.status > 0 ? " " : "", why->slug);
    gbc_text_addf(&line, " (%llu ms)", (unsigned long long)(gbc_now_ms() - began_ms));
    if (!line.failed)
        conn->set->trace(conn->set->trace_arg, line.data);
    gbc_text_done(&line);
}

/* A connection that ended without a word: perhaps TLS is spoken there. */
static void reconsider(struct gbc_conn *conn, struct gpubuf_error *why) {
    struct gpubuf_error found;

    gbc_error_init(&found);
    if (why->code == GPUBUF_CONNECTION_LOST && !conn->set->tls && explain(conn, true, "", &found) < 0)
        *why = found;
}

/* One attempt at the client's own daemon, and where that is a node of a fleet, at those that it names. */
static int attempt_all(struct gbc_conn *conn, struct gbc_request *request, struct gpubuf_error *err) {
    int r;

    go_home(conn);
    do {
        uint64_t began_ms = gbc_now_ms();

        r = interrupted(conn, err) < 0 ? -1 : attempt(conn, request, err);
        trace(conn, request, began_ms, err);
        if (r == REDIRECTED && take_redirect(conn, err) < 0)
            return -1;
    } while (r == REDIRECTED);
    return r;
}

int gbc_perform(struct gbc_conn *conn, struct gbc_request *request, struct gpubuf_error *err) {
    uint64_t pause_ms = PAUSE_FIRST_MS;
    bool lost = false;
    unsigned tries;

    if (request->target.failed || request->headers.failed || request->json.failed)
        gbc_error_memory(&request->wrong);
    if (request->wrong.code != GPUBUF_OK) {
        if (err && err->code == GPUBUF_OK)
            *err = request->wrong;
        return -1;
    }
    for (tries = 0;; tries++) {
        struct gpubuf_error why;
        uint64_t ms = pause_ms;
        int r;

        gbc_error_init(&why);
        conn->request = request;
        r = attempt_all(conn, request, &why);
        /* What was deleted before the connection was lost is not found the second time. */
        if (r < 0 && lost && why.status == 404 && strcmp(request->method, "DELETE") == 0) {
            conn->reply.status = 204;
            r = 0;
        }
        if (r == 0)
            return 0;
        if (why.retry_after_s > 0)
            ms = (uint64_t)(why.retry_after_s < RETRY_AFTER_MAX_S ? why.retry_after_s : RETRY_AFTER_MAX_S) * 1000;
        if (tries >= conn->set->retries || !may_repeat(conn, &why) || !rewound(request) ||
            gbc_pause(conn, ms, &why) < 0) {
            reconsider(conn, &why);
            if (err && err->code == GPUBUF_OK)
                *err = why;
            return -1;
        }
        lost = lost || is_unknown(&why);
        pause_ms = pause_ms * 4 < PAUSE_MAX_MS ? pause_ms * 4 : PAUSE_MAX_MS;
    }
}
