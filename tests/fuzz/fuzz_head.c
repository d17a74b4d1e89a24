/* The head of a request, read by libmicrohttpd from a socket and then by our checks. A head that they let through reads
 * the same by the grammar of RFC 9112, to its last byte: its fields, its framing and its end. */
#include <microhttpd.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/text.h"
#include "fuzz.h"
#include "http/message/fields.h"
#include "http/message/request.h"
#include "http/server/connection.h"
#include "http/server/loop.h"
#include "http/server/request.h"

#define MEMORY 16384

const unsigned gb_fuzz_mutants = 2000;
const char *const gb_fuzz_seeds[] = {
    "GET /v1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "PUT /x?a=b HTTP/1.1\r\nHost: [::1]:7070\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nabcde",
    "\r\nPOST /x HTTP/1.1\r\nhost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\nX:\r\nY: \t a b \t\r\n\r\n0\r\n\r\n",
    "DELETE /x HTTP/1.0\r\nConnection: keep-alive, close\r\nOrigin: http://localhost\r\nCookie: a=b; c\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a.example\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: "
    "document\r\n\r\n",
    "GET / HTTP/1.1\nHost: localhost\r\n X: folded\r\nContent-Length : 5\r\nContent-Length: 5, 5\r\n\r\n",
    NULL,
};

static const char *const hosts[] = {"a.example"};
static const char *const pages[] = {"/"};
static struct gb_http_server server = {.rules = {hosts, 1, pages, 1}, .config = {.connection_memory = MEMORY}};
static struct gb_loop loop = {.server = &server};
static struct gb_conn conn = {.loop = &loop};
static struct MHD_Daemon *mhd;

/* The present input. */
static const char *raw;
static size_t raw_n;
static struct gb_exchange *ex;

/* --- the grammar, once more --------------------------------------------------------------------------------------- */

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

static bool is(const struct gb_http_text *text, const char *s, const char *end) {
    return text->len == (size_t)(end - s) && memcmp(text->s, s, text->len) == 0;
}

/* Returns the end of the token at s, which must not be empty. */
static const char *token(const char *s, const char *end) {
    const char *at = s;

    while (at < end && gb_field_is_token((unsigned char)*at))
        at++;
    FUZZ_ASSERT(at > s);
    return at;
}

/* libmicrohttpd 0.9.75 overwrites the end of a line with NULs, and so a NUL in the place of one of its two bytes is not
 * seen. Behind the last field, it takes a field without a name for the empty line, and its colon becomes a NUL as well.
 * What is checked here is that this changes nothing else. */
static bool is_line_end(const char *s) {
    return (s[0] == '\r' && (s[1] == '\n' || s[1] == '\0')) || (s[0] == '\0' && (s[1] == '\n' || s[1] == '\r'));
}

static bool is_head_end(const char *s) {
    unsigned i;

    for (i = 0; i < 4 && memchr("\r\n:", s[i], 4); i++)
        ;
    return i == 4;
}

/* last: where the line ends if no other follows. */
static const char *line_end(const char *s, const char *last, bool follows) {
    while (follows && s < last && !is_line_end(s))
        s++;
    FUZZ_ASSERT(s <= last);
    return follows ? s : last;
}

/* Behind the empty lines before a request. One that begins with a NUL is empty for libmicrohttpd, whatever follows. */
static const char *request_line(const char *s, const char *end) {
    while (s < end && (*s == '\n' || *s == '\0' || (*s == '\r' && s[1] == '\n'))) {
        s = memchr(s, '\n', (size_t)(end - s));
        FUZZ_ASSERT(s);
        s++;
    }
    return s;
}

static void check_request_line(const char *s, const char *line) {
    const char *target = token(s, line) + 1;
    const char *behind = line - strlen(" HTTP/1.1");

    FUZZ_ASSERT(target < behind && target[-1] == ' ' && is(&ex->req.target, target, behind));
    FUZZ_ASSERT(memcmp(behind, " HTTP/1.", 8) == 0 && (behind[8] == '0') == ex->req.http10);
    for (; target < behind; target++)
        FUZZ_ASSERT((unsigned char)*target > ' ' && *target != 0x7f);
}

static void check_field(const struct gb_http_pair *pair, const char *s, const char *line) {
    const char *colon = token(s, line);
    const char *behind = line;
    const char *value;
    const char *at;

    FUZZ_ASSERT(colon < line && *colon == ':' && is(&pair->name, s, colon));
    for (value = colon + 1; value < line && is_blank(*value); value++)
        ;
    while (behind > value && is_blank(behind[-1]))
        behind--;
    FUZZ_ASSERT(is(&pair->value, value, behind));
    for (at = value; at < behind; at++)
        FUZZ_ASSERT(*at == '\t' || ((unsigned char)*at >= ' ' && *at != 0x7f));
}

static void check_framing(const struct gb_http_request *req) {
    unsigned lengths = 0;
    unsigned codings = 0;
    unsigned named = 0;
    uint64_t length = 0;
    unsigned i;

    for (i = 0; i < req->headers; i++) {
        const struct gb_http_text *value = &req->header[i].value;

        named += strcasecmp(req->header[i].name.s, "Host") == 0;
        if (strcasecmp(req->header[i].name.s, "Content-Length") == 0) {
            lengths++;
            FUZZ_ASSERT(value->len > 0 && gb_parse_u64(value->s, value->len, &length) == GB_PARSE_OK);
        } else if (strcasecmp(req->header[i].name.s, "Transfer-Encoding") == 0) {
            codings++;
            FUZZ_ASSERT(strcasecmp(value->s, "chunked") == 0 && !req->http10);
        }
    }
    FUZZ_ASSERT(lengths + codings <= 1 && named <= 1 && (named == 1 || req->http10));
    FUZZ_ASSERT(req->has_content_length == (lengths == 1) && req->chunked == (codings == 1));
    FUZZ_ASSERT(lengths == 0 || req->content_length == length);
}

static void check_accepted(size_t header_size) {
    const char *end = raw + raw_n;
    const char *begin = request_line(raw, end);
    const char *last = begin + header_size - 4;
    const char *line = line_end(begin, last, ex->req.headers > 0);
    unsigned i;

    FUZZ_ASSERT(end - begin >= (ssize_t)header_size && is_head_end(last));
    check_request_line(begin, line);
    for (i = 0; i < ex->req.headers; i++) {
        const char *at = line + 2;

        line = line_end(at, last, i + 1 < ex->req.headers);
        check_field(&ex->req.header[i], at, line);
    }
    check_framing(&ex->req);
    gb_head_keep(ex);
    if (ex->raw && !memchr(begin, '\0', header_size) && memcmp(last, "\r\n\r\n", 4) == 0)
        FUZZ_ASSERT(ex->raw_len == header_size && memcmp(ex->raw, begin, header_size) == 0);
}

/* --- libmicrohttpd ------------------------------------------------------------------------------------------------ */

/* As gb_mhd_on_uri does. */
static void *on_uri(void *cls, const char *uri, struct MHD_Connection *connection) {
    char *query = strchr((char *)(uintptr_t)uri, '?');

    (void)cls;
    (void)connection;
    FUZZ_ASSERT(!ex);
    ex = gb_exchange_new(&server, uri);
    if (query && query[1] != '\0')
        query[1] = '\0';
    return ex;
}

/* As mhd_begin does. */
static enum MHD_Result on_request(void *cls, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *data, size_t *size, void **con_cls) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_head head = {NULL, NULL};
    const union MHD_ConnectionInfo *header;
    struct gb_http_text path;

    (void)cls;
    (void)data;
    (void)size;
    FUZZ_ASSERT(ex && *con_cls == ex);
    ex->conn = connection;
    ex->info = &conn;
    ex->req.http10 = strcmp(version, "HTTP/1.0") == 0;
    ex->req.local = raw_n % 2;
    header = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (!gb_head_request_line(&head, ex, method, url, version) || gb_mhd_read_headers(ex, &head, &err) < 0 ||
        !gb_head_end(&head, ex)) {
        FUZZ_ASSERT(err.code == GB_OK || err.detail[0] != '\0');
        return MHD_NO;
    }
    ex->head_at = head.at ? head.begin : NULL;
    if (gb_request_check(&ex->req, &server.rules, &err) < 0 ||
        gb_request_parse_target(&ex->req, &ex->texts, &path, &err) < 0)
        FUZZ_ASSERT_SAYS(err);
    else
        check_accepted(header->header_size);
    return MHD_NO;
}

static size_t keep_escapes(void *cls, struct MHD_Connection *connection, char *s) {
    (void)cls;
    (void)connection;
    return strlen(s);
}

static void say_nothing(void *cls, const char *fmt, va_list ap) {
    (void)cls;
    (void)fmt;
    (void)ap;
}

static void start(void) {
    mhd = MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_request,
                           NULL, MHD_OPTION_EXTERNAL_LOGGER, say_nothing, NULL, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                           (size_t)MEMORY, MHD_OPTION_URI_LOG_CALLBACK, on_uri, NULL, MHD_OPTION_UNESCAPE_CALLBACK,
                           keep_escapes, NULL, MHD_OPTION_END);
    loop.reads_leniently = strverscmp(MHD_get_version(), "0.9.76") < 0;
    FUZZ_ASSERT(mhd);
}

static bool has_ended(void) {
    return MHD_get_daemon_info(mhd, MHD_DAEMON_INFO_CURRENT_CONNECTIONS)->num_connections == 0;
}

/* The client ends after the first turn: libmicrohttpd overlooks an end that comes with the bytes. */
static void run_to_the_end(int fd) {
    unsigned turns;

    for (turns = 0; turns < 100 && !(turns > 0 && has_ended()); turns++) {
        FUZZ_ASSERT(MHD_run(mhd) == MHD_YES);
        if (turns == 0)
            close(fd);
    }
    FUZZ_ASSERT(has_ended());
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sockaddr_un from = {.sun_family = AF_UNIX};
    int pair[2];

    if (size > MEMORY)
        return 0;
    if (!mhd)
        start();
    raw = (const char *)data;
    raw_n = size;
    FUZZ_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    FUZZ_ASSERT(send(pair[1], data, size, MSG_NOSIGNAL) == (ssize_t)size);
    FUZZ_ASSERT(MHD_add_connection(mhd, pair[0], (struct sockaddr *)&from, sizeof(from)) == MHD_YES);
    run_to_the_end(pair[1]);
    if (ex)
        gb_exchange_unref(ex);
    ex = NULL;
    return 0;
}

void gb_fuzz_end(void) {
    if (mhd)
        MHD_stop_daemon(mhd);
}
