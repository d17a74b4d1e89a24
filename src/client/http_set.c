/* The options and callbacks of curl for one request. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "client/epochs.h"
#include "client/http.h"

#define BUFFER_BYTES (512l << 10) /* curl's own, each way */
#define AT_ONCE_BYTES (1u << 20)  /* as many bytes cost less than a round trip */

/* --- callbacks ---------------------------------------------------------------------------------------------------- */

static size_t on_header(char *line, size_t one, size_t bytes, void *arg) {
    struct gbc_conn *conn = arg;
    const struct gbc_down *down = conn->request->down;
    bool end = false;

    (void)one;
    conn->moved_ms = gbc_now_ms();
    gbc_reply_line(&conn->reply, line, bytes, &end);
    if (!end || conn->answered)
        return bytes;
    conn->answered = true;
    if (down && conn->reply.status < 300 && down->begin(down->arg, &conn->reply, &conn->inner) < 0)
        return 0;
    return bytes;
}

static size_t on_write(char *data, size_t one, size_t bytes, void *arg) {
    struct gbc_conn *conn = arg;
    const struct gbc_down *down = conn->request->down;

    (void)one;
    conn->moved_ms = gbc_now_ms();
    if (down && conn->reply.status < 300)
        return down->write(down->arg, data, bytes, &conn->inner) < 0 ? 0 : bytes;
    if (conn->reply.body.bytes + bytes > GBC_BODY_MAX) {
        gbc_error_set(&conn->inner, GPUBUF_BAD_ANSWER, "an answer of more than %zu MiB", GBC_BODY_MAX >> 20);
        return 0;
    }
    gbc_text_add(&conn->reply.body, data, bytes);
    return conn->reply.body.failed ? 0 : bytes;
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

static size_t on_read(char *data, size_t one, size_t room, void *arg) {
    struct gbc_conn *conn = arg;
    struct gbc_request *request = conn->request;
    int64_t n;

    (void)one;
    conn->moved_ms = gbc_now_ms();
    if (request->up)
        n = request->up->read(request->up->arg, data, room, &conn->inner);
    else if (request->body)
        n = (int64_t)memory_read(conn, request->body, request->body_bytes, data, room);
    else
        n = (int64_t)memory_read(conn, request->json.data, request->json.bytes, data, room);
    if (n < 0)
        return CURL_READFUNC_ABORT;
    conn->body_at += (uint64_t)n;
    conn->sent = n == 0 || conn->body_at == body_bytes(request);
    return (size_t)n;
}

/* curl sends again what it sent over a connection that turned out to be closed. */
static int on_seek(void *arg, curl_off_t offset, int origin) {
    struct gbc_conn *conn = arg;
    const struct gbc_up *up = conn->request->up;

    if (origin != SEEK_SET || offset != 0)
        return CURL_SEEKFUNC_CANTSEEK;
    conn->body_at = 0;
    conn->sent = false;
    if (up && (!up->rewind || up->rewind(up->arg) < 0))
        return CURL_SEEKFUNC_CANTSEEK;
    return CURL_SEEKFUNC_OK;
}

/* --- options ------------------------------------------------------------------------------------------------------ */

static int add_header(struct gbc_conn *conn, const char *line) {
    struct curl_slist *longer = curl_slist_append(conn->headers, line);

    if (!longer)
        return -1;
    conn->headers = longer;
    return 0;
}

/* The caller of gpubuf_request() may give another. */
static int add_epoch(struct gbc_conn *conn, bool given) {
    uint64_t epoch = given ? 0 : gbc_epochs_of(conn->set->epochs, conn->request->target.data);
    char line[48];

    if (epoch == 0)
        return 0;
    snprintf(line, sizeof(line), "Gpubuf-Epoch: %llu", (unsigned long long)epoch);
    return add_header(conn, line);
}

/* curl asks by Expect: 100-continue before it sends a body, and waits a second for the answer. What cannot be read
 * again is sent only to a server that takes it: a refusal may be followed by another attempt, or lead to another
 * node. */
static bool goes_at_once(const struct gbc_request *request) {
    return body_bytes(request) <= AT_ONCE_BYTES && (!request->up || request->up->again);
}

static int add_headers(struct gbc_conn *conn) {
    const struct gbc_request *request = conn->request;
    struct gbc_text line = {.data = NULL};
    bool given = false;
    size_t at;
    int r = 0;

    for (at = 0; at < request->headers.bytes; at += strlen(request->headers.data + at) + 1) {
        given = given || strncasecmp(request->headers.data + at, "Gpubuf-Epoch:", 13) == 0;
        r |= add_header(conn, request->headers.data + at);
    }
    r |= add_epoch(conn, given);
    if (goes_at_once(request))
        r |= add_header(conn, "Expect:"); /* none is sent; the caller's own, above, is */
    if (conn->set->token && !gbc_redirect_away(conn)) {
        gbc_text_addf(&line, "Authorization: Bearer %s", conn->set->token);
        r |= line.failed ? -1 : add_header(conn, line.data);
        gbc_text_done(&line);
    }
    if (request->json.bytes > 0)
        r |= add_header(conn, "Content-Type: application/json");
    else if (request->body_type) {
        gbc_text_addf(&line, "Content-Type: %s", request->body_type);
        r |= line.failed ? -1 : add_header(conn, line.data);
        gbc_text_done(&line);
    }
    return r < 0 ? -1 : 0;
}

/* libcurl copies texts. A request without one of them would go elsewhere, or be another. Returns 0, or -1 without
 * memory. */
static int set_text(struct gbc_conn *conn, CURLoption option, const char *text) {
    return curl_easy_setopt(conn->easy, option, text) == CURLE_OK ? 0 : -1;
}

static int set_where(struct gbc_conn *conn, const char *url) {
    const struct gbc_settings *set = conn->set;
    bool local = conn->hops > 0 ? gbc_is_loopback(url) : set->local;
    int r = set_text(conn, CURLOPT_URL, url);

    curl_easy_setopt(conn->easy, CURLOPT_PATH_AS_IS, 1l);
    if (set->socket && conn->hops == 0)
        r |= set_text(conn, CURLOPT_UNIX_SOCKET_PATH, set->socket);
    if (local)
        r |= set_text(conn, CURLOPT_PROXY, "");
    curl_easy_setopt(conn->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(conn->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)set->connect_ms);
    r |= set_text(conn, CURLOPT_USERAGENT, set->agent);
    curl_easy_setopt(conn->easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1l);
    curl_easy_setopt(conn->easy, CURLOPT_NOSIGNAL, 1l);
    curl_easy_setopt(conn->easy, CURLOPT_TCP_NODELAY, 1l);
    curl_easy_setopt(conn->easy, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
    curl_easy_setopt(conn->easy, CURLOPT_UPLOAD_BUFFERSIZE, BUFFER_BYTES);
    curl_easy_setopt(conn->easy, CURLOPT_ERRORBUFFER, conn->said);
    return r;
}

static void set_body(struct gbc_conn *conn) {
    uint64_t bytes = body_bytes(conn->request);

    conn->body_at = 0;
    curl_easy_setopt(conn->easy, CURLOPT_UPLOAD, 1l);
    curl_easy_setopt(conn->easy, CURLOPT_INFILESIZE_LARGE, bytes == GPUBUF_UNKNOWN ? -1 : (curl_off_t)bytes);
    curl_easy_setopt(conn->easy, CURLOPT_READFUNCTION, on_read);
    curl_easy_setopt(conn->easy, CURLOPT_READDATA, conn);
    curl_easy_setopt(conn->easy, CURLOPT_SEEKFUNCTION, on_seek);
    curl_easy_setopt(conn->easy, CURLOPT_SEEKDATA, conn);
    conn->sent = bytes == 0;
}

/* Where curl cannot take certificates from memory (its GnuTLS flavour), it reads such a folder itself. */
static int set_tls(struct gbc_conn *conn) {
    const struct gbc_settings *set = conn->set;
    struct curl_blob folder = {.data = set->ca_text, .len = set->ca_bytes, .flags = CURL_BLOB_NOCOPY};
    int r = 0;

    curl_easy_setopt(conn->easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (set->cacert) {
        r |= set_text(conn, CURLOPT_CAINFO, set->ca_text ? NULL : set->cacert);
        curl_easy_setopt(conn->easy, CURLOPT_CAPATH, NULL);
    }
    if (set->ca_text && curl_easy_setopt(conn->easy, CURLOPT_CAINFO_BLOB, &folder) != CURLE_OK)
        r |= set_text(conn, CURLOPT_CAPATH, set->cacert);
    if (set->cert) {
        r |= set_text(conn, CURLOPT_SSLCERT, set->cert);
        r |= set_text(conn, CURLOPT_SSLKEY, set->key);
    }
    return r;
}

int gbc_conn_set(struct gbc_conn *conn, struct gpubuf_error *err) {
    const struct gbc_request *request = conn->request;
    bool head = strcmp(request->method, "HEAD") == 0;
    bool bare = !request->up && !request->body && request->json.bytes == 0 &&
                (head || strcmp(request->method, "GET") == 0 || strcmp(request->method, "DELETE") == 0);
    struct gbc_text url = {.data = NULL};
    int r;

    curl_easy_reset(conn->easy);
    if (conn->hops > 0)
        gbc_text_add(&url, conn->hop.data, conn->hop.bytes);
    else
        gbc_text_addf(&url, "%s%s", conn->set->base, request->target.data);
    r = url.failed || add_headers(conn) < 0 ? -1 : set_where(conn, url.data);
    if (r == 0 && strncmp(url.data, "https:", 6) == 0)
        r = set_tls(conn);
    gbc_text_done(&url);
    if (r == 0 && !head)
        r = set_text(conn, CURLOPT_CUSTOMREQUEST, request->method);
    if (r < 0)
        return gbc_error_memory(err);
    if (head)
        curl_easy_setopt(conn->easy, CURLOPT_NOBODY, 1l);
    else if (bare)
        conn->sent = true;
    else
        set_body(conn);
    conn->sent = conn->sent || head;
    curl_easy_setopt(conn->easy, CURLOPT_HTTPHEADER, conn->headers);
    curl_easy_setopt(conn->easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(conn->easy, CURLOPT_HEADERDATA, conn);
    curl_easy_setopt(conn->easy, CURLOPT_WRITEFUNCTION, on_write);
    curl_easy_setopt(conn->easy, CURLOPT_WRITEDATA, conn);
    return 0;
}

void gbc_conn_unset(struct gbc_conn *conn) {
    curl_slist_free_all(conn->headers);
    conn->headers = NULL;
}
