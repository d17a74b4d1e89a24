/* The end of a request: the framing of chunked bodies, and headers that can be read in more than one way. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gb_test.h"
#include "http/message/chunked.h"
#include "http_fixture.h"

static struct gb_http_fixture f;

/* --- the decoder alone -------------------------------------------------------------------------------------------- */

struct body {
    const char *what;
    const char *bytes;
    const char *data; /* NULL: malformed */
};

/* "%N" stands for N times 'x'; with a letter before the number, for N times that letter. */
static const struct body bodies[] = {
    {"empty", "0\r\n\r\n", ""},
    {"one", "5\r\nhello\r\n0\r\n\r\n", "hello"},
    {"two", "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", "hello world"},
    {"upper case", "A\r\n0123456789\r\n0\r\n\r\n", "0123456789"},
    {"lower case", "a\r\n0123456789\r\n0\r\n\r\n", "0123456789"},
    {"leading zeros", "0000000000000003\r\nabc\r\n0000\r\n\r\n", "abc"},
    {"extensions", "3;a\r\nabc\r\n2 ; b = \"c\" ;d\r\nde\r\n0;e\r\n\r\n", "abcde"},
    {"trailers", "3\r\nabc\r\n0\r\nA: b\r\nContent-Length: 5\r\nC:\r\n\r\n", "abc"},
    {"data that looks like framing", "7\r\n\r\n0\r\n\r\n\r\n0\r\n\r\n", "\r\n0\r\n\r\n"},
    {"no size", "\r\n", NULL},
    {"no digits", "x\r\n", NULL},
    {"prefix", "0x5\r\nhello\r\n", NULL},
    {"sign", "+5\r\n", NULL},
    {"negative", "-5\r\n", NULL},
    {"blank first", " 5\r\n", NULL},
    {"blank behind", "5 \r\nhello\r\n", NULL},
    {"17 digits", "00000000000000005\r\n", NULL},
    {"LF alone behind the size", "5\nhello\r\n", NULL},
    {"CR alone behind the size", "5\rhello", NULL},
    {"LF alone behind an extension", "5;a\nhello", NULL},
    {"a NUL in an extension", "5;a\177b\r\n", NULL},
    {"LF alone behind data", "5\r\nhello\n0\r\n\r\n", NULL},
    {"nothing behind data", "5\r\nhello0\r\n\r\n", NULL},
    {"more data than announced", "4\r\nhello\r\n", NULL},
    {"LF alone at the end", "0\r\n\n", NULL},
    {"a trailer without a name", "0\r\n: x\r\n\r\n", NULL},
    {"a folded trailer", "0\r\nA: b\r\n c\r\n\r\n", NULL},
    {"a trailer without a colon", "0\r\nabc\r\n\r\n", NULL},
    {"blank before the colon", "0\r\nA : b\r\n\r\n", NULL},
    {"LF alone behind a trailer", "0\r\nA: b\n\r\n", NULL},
};

/* Decodes in pieces of `piece` bytes. Returns false if the text is malformed. */
static bool decode(const char *s, size_t n, size_t piece, char *ret, size_t *ret_used) {
    struct gb_chunked c = {0};
    const char *why = NULL;
    size_t used = 0;
    size_t at = 0;

    while (at < n && c.state != GB_CHUNKED_DONE) {
        size_t size = n - at < piece ? n - at : piece;

        if (c.state == GB_CHUNKED_DATA) {
            size = size < c.left ? size : (size_t)c.left;
            memcpy(ret + used, s + at, size);
            used += size;
            gb_chunked_took(&c, size);
            at += size;
        } else {
            ssize_t read = gb_chunked_read(&c, s + at, size, &why);

            if (read < 0) {
                ck_assert_ptr_nonnull(why);
                return false;
            }
            ck_assert_int_gt(read, 0);
            at += (size_t)read;
        }
    }
    ret[used] = '\0';
    *ret_used = at;
    return c.state == GB_CHUNKED_DONE;
}

START_TEST(chunks_are_read_in_pieces_of_any_size) {
    const struct body *b = &bodies[_i];
    size_t n = strlen(b->bytes);
    char data[256];
    size_t piece;
    size_t used;

    for (piece = 1; piece <= n; piece++) {
        bool whole = decode(b->bytes, n, piece, data, &used);

        ck_assert_msg(whole == (b->data != NULL), "%s, by %zu", b->what, piece);
        if (b->data) {
            ck_assert_str_eq(data, b->data);
            ck_assert_uint_eq(used, n);
        }
    }
}
END_TEST

/* Each bound, and one byte more. */
START_TEST(framing_has_bounds) {
    static const struct {
        const char *before;
        size_t most;
        const char *behind;
    } bounds[] = {{"3;", GB_CHUNKED_EXTENSION_MAX - 1, "\r\nabc\r\n0\r\n\r\n"},
                  {"0\r\nA:", GB_CHUNKED_TRAILER_MAX - 3, "\r\n\r\n"},
                  {"0\r\n", GB_CHUNKED_TRAILER_MAX - 2, ":\r\n\r\n"}};
    char *text = malloc(20000);
    char data[16];
    size_t used;
    size_t i;
    size_t more;

    for (i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
        for (more = 0; more < 2; more++) {
            size_t n = strlen(bounds[i].before);
            size_t filler = bounds[i].most + more;

            memcpy(text, bounds[i].before, n);
            memset(text + n, 'x', filler);
            strcpy(text + n + filler, bounds[i].behind);
            ck_assert_msg(decode(text, strlen(text), 1000, data, &used) == (more == 0), "%zu, %zu more", i, more);
        }
    }
    free(text);
}
END_TEST

START_TEST(what_follows_the_body_is_not_read) {
    static const char bytes[] = "3\r\nabc\r\n0\r\n\r\nGET / HTTP/1.1\r\n";
    char data[16];
    size_t used;

    ck_assert(decode(bytes, strlen(bytes), 100, data, &used));
    ck_assert_str_eq(bytes + used, "GET / HTTP/1.1\r\n");
}
END_TEST

/* --- a server ----------------------------------------------------------------------------------------------------- */

#define CANARY "PUT /b/canary HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6\r\n\r\ncanary"

struct head {
    const char *what;
    const char *bytes;
    size_t n;
    int status;
};

#define PUT "PUT /b/x HTTP/1.1\r\nHost: localhost\r\n"
#define HEAD(what, bytes, status)                                                                                      \
    { what, bytes, sizeof(bytes) - 1, status }

static const struct head heads[] = {
    HEAD("a folded length", PUT "Content-Length: 15\r\n 0\r\n\r\n", 400),
    HEAD("a folded name", PUT "Content-Len: 5\r\n gth\r\n\r\n", 400),
    HEAD("a fold behind an empty value", PUT "N:\r\n x\r\nContent-Length: 0\r\n\r\n", 400),
    HEAD("a fold behind blanks", PUT "N:    \r\n x\r\nContent-Length: 0\r\n\r\n", 400),
    HEAD("a fold at the end", PUT "Content-Length: 0\r\nN: 1\r\n\tx\r\n\r\n", 400),
    HEAD("a fold of blanks alone", PUT "Content-Length: 0\r\nN: 1\r\n \r\n\r\n", 400),
    HEAD("a fold at the beginning", "PUT /b/x HTTP/1.1\r\n Host: localhost\r\nHost: localhost\r\n\r\n", 400),
    HEAD("a NUL in a length", PUT "Content-Length: 0\0005\r\n\r\n", 400),
    HEAD("a NUL in a value", PUT "Content-Length: 0\r\nX: a\0b\r\n\r\n", 400),
    HEAD("a NUL and a byte in the last value", PUT "Content-Length: 0\0=\n\n", 400),
    HEAD("a NUL and a byte behind the request line", "GET /canned HTTP/1.0\0=\n\n", 400),
    HEAD("a NUL in a name", PUT "Content-Length: 0\r\nX\0Y: a\r\n\r\n", 400),
    HEAD("a NUL in the target", "PUT /b/x\0y HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 400),
    HEAD("a NUL in the query", "PUT /b/x?a\0b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 400),
    HEAD("a NUL in the method", "PUT\0X /b/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 400),
    HEAD("LF behind the request line", "PUT /b/x HTTP/1.1\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 400),
    HEAD("LF behind a field", "PUT /b/x HTTP/1.1\r\nHost: localhost\nContent-Length: 0\r\n\r\n", 400),
    HEAD("LF at the end", PUT "Content-Length: 0\r\n\n", 400),
    HEAD("CR behind a field", PUT "Content-Length: 0\r\r\n\r\n", 400),
    HEAD("two blanks behind the method", "PUT  /b/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 400),
    HEAD("a blank in the target", "PUT /b/ x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 400),
    HEAD("a blank behind the target", "PUT /b/x  HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 400),
    HEAD("a CR before the method", "\rPUT /b/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 400),
    HEAD("a blank before a colon", PUT "Content-Length : 0\r\n\r\n", 400),
    HEAD("a list of lengths", PUT "Content-Length: 0, 0\r\n\r\n", 400),
    HEAD("a blank behind a length", PUT "Content-Length: 0 \r\n\r\n", 400),
    HEAD("a bad chunk", PUT "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    HEAD("a chunk with LF", PUT "Transfer-Encoding: chunked\r\n\r\n1\nx\n0\n\n", 400),
};

/* Reads to the end. Returns the number of heads, and the status of the first. */
static int heads_of(int fd, int *ret_status) {
    char text[8192];
    size_t used = 0;
    const char *at = text;
    ssize_t n;
    int count = 0;

    while (used < sizeof(text) - 1 && (n = recv(fd, text + used, sizeof(text) - 1 - used, 0)) > 0)
        used += (size_t)n;
    text[used] = '\0';
    *ret_status = 0;
    (void)!sscanf(text, "HTTP/1.1 %d", ret_status);
    while ((at = strstr(at, "HTTP/1.1 "))) {
        count++;
        at++;
    }
    return count;
}

/* One loop, so that connections are served in the order in which they came. */
static void one_loop(struct gb_http_server_config *config) {
    config->loops = 1;
}

static void try_head(const struct head *h, size_t split, size_t behind) {
    size_t repeat;
    int status;
    int count;
    int fd = gb_client(&f);

    gb_client_send(fd, h->bytes, split);
    if (split < h->n) {
        int other = gb_client(&f);

        /* The server has read the first part, because it answers another connection that came later. */
        gb_client_text(other, "GET /canned HTTP/1.1\r\nHost: localhost\r\n\r\n");
        ck_assert_int_eq(gb_client_reply(other, NULL, 0, NULL, NULL), 200);
        close(other);
        gb_client_send(fd, h->bytes + split, h->n - split);
    }
    for (repeat = 0; repeat < behind; repeat++)
        gb_client_text(fd, CANARY);
    shutdown(fd, SHUT_WR);
    count = heads_of(fd, &status);
    ck_assert_msg(status == h->status, "%s, split at %zu: %d instead of %d", h->what, split, status, h->status);
    ck_assert_msg(count == 1, "%s, split at %zu: %d heads", h->what, split, count);
    close(fd);
}

/* Each header, split over two reads at every byte: there is one answer, and the bytes that follow are not read as a
 * request. */
START_TEST(heads_are_read_in_one_way_only) {
    const struct head *h = &heads[_i];
    size_t split;

    gb_http_fixture_start(&f, one_loop);
    for (split = 0; split < h->n; split++)
        try_head(h, split, 1);
    try_head(h, h->n, 1);
    try_head(h, h->n, 200); /* more than libmicrohttpd's buffer holds */
    ck_assert_uint_eq(atomic_load(&f.stored), 0);
    gb_http_fixture_stop(&f);
}
END_TEST

/* More cookies than libmicrohttpd has room for. */
START_TEST(small_cookies_are_refused_once) {
    char *text = malloc(8000);
    size_t n = (size_t)sprintf(text, "GET /canned HTTP/1.1\r\nHost: localhost\r\nCookie: ");
    struct head h = {"cookies", text, 0, 431};
    int i;

    for (i = 0; i < 1000; i++)
        n += (size_t)sprintf(text + n, "a=b; ");
    strcpy(text + n, "\r\n\r\n");
    h.n = strlen(text);
    gb_http_fixture_start(&f, one_loop);
    try_head(&h, h.n, 0);
    try_head(&h, 100, 0);
    gb_http_fixture_stop(&f);
    free(text);
}
END_TEST

/* A size line, an extension or a trailer that does not end is refused, and the connection ends. */
START_TEST(framing_without_an_end_is_refused) {
    static const char *const begun[] = {"0", "5;", "1\r\nx", "0\r\nA: ", "0\r\n"};
    struct gb_http_server_stat stat;
    char *data = malloc(20000);
    size_t i;

    memset(data, '0', 20000);
    gb_http_fixture_start(&f, NULL);
    for (i = 0; i < 5; i++) {
        int fd = gb_client(&f);
        int status;

        gb_client_text(fd, PUT "Transfer-Encoding: chunked\r\n\r\n");
        gb_client_text(fd, begun[i]);
        gb_client_send(fd, data, 20000);
        ck_assert_int_eq(heads_of(fd, &status), 1);
        ck_assert_msg(status == 400, "%s: %d", begun[i], status);
        close(fd);
    }
    do
        gb_http_server_stat(f.server, &stat);
    while (stat.connections > 0);
    gb_http_fixture_stop(&f);
    free(data);
}
END_TEST

/* The connection is kept, and the next request is read from the end of the body. */
START_TEST(chunked_bodies_keep_the_connection) {
    static const char *const codings[] = {"chunked", "Chunked", "chunked ", "chunked\t", " \tchunked \t"};
    char head[200];
    char body[64];
    size_t i;
    bool closes;
    int fd;

    gb_http_fixture_start(&f, NULL);
    fd = gb_client(&f);
    for (i = 0; i < 5; i++) {
        snprintf(head, sizeof(head), "PUT /b/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding:%s\r\n\r\n",
                 codings[i]);
        gb_client_text(fd, head);
        gb_client_text(fd, "5\r\nhello\r\n0\r\nA: b\r\n\r\n");
        ck_assert_int_eq(gb_client_reply(fd, body, sizeof(body), NULL, &closes), 200);
        ck_assert_str_eq(body, "5");
        ck_assert_msg(!closes, "'%s'", codings[i]);
        gb_client_text(fd, "POST /json HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
        gb_client_text(fd, "2\r\n{}\r\n0\r\n\r\n");
        ck_assert_int_eq(gb_client_reply(fd, body, sizeof(body), NULL, &closes), 200);
        ck_assert_str_eq(body, "2");
        ck_assert(!closes);
    }
    close(fd);
    gb_http_fixture_stop(&f);
}
END_TEST

/* A body of several turns, with and without bytes that came with the header. */
START_TEST(chunks_of_a_byte_arrive) {
    size_t count = 20000;
    char *text = malloc(count * 6 + 200);
    char body[64];
    size_t n = (size_t)sprintf(text, "PUT /b/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    size_t i;
    int fd;

    for (i = 0; i < count; i++)
        n += (size_t)sprintf(text + n, "1\r\n%c\r\n", (char)('a' + i % 26));
    n += (size_t)sprintf(text + n, "0\r\n\r\n");
    gb_http_fixture_start(&f, NULL);
    fd = gb_client(&f);
    gb_client_send(fd, text, n);
    ck_assert_int_eq(gb_client_reply(fd, body, sizeof(body), NULL, NULL), 200);
    ck_assert_str_eq(body, "20000");
    for (i = 0; i < count; i++)
        ck_assert_int_eq(f.memory[i], (char)('a' + i % 26));
    close(fd);
    /* The whole body came with the header: the socket has no further event. */
    n = (size_t)sprintf(text, "PUT /b/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (i = 0; i < 1000; i++)
        n += (size_t)sprintf(text + n, "1\r\nx\r\n");
    sprintf(text + n, "0\r\n\r\n");
    fd = gb_client(&f);
    gb_client_text(fd, text);
    ck_assert_int_eq(gb_client_reply(fd, body, sizeof(body), NULL, NULL), 200);
    ck_assert_str_eq(body, "1000");
    close(fd);
    gb_http_fixture_stop(&f);
    free(text);
}
END_TEST

/* If a next request has come, libmicrohttpd reports an empty body after its 100 Continue. */
START_TEST(who_expects_100_without_a_body_is_answered) {
    static const char *const first[] = {"GET /canned HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n\r\n",
                                        "POST /json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
                                        "Expect: 100-continue\r\n\r\n"};
    size_t i;

    gb_http_fixture_start(&f, NULL);
    for (i = 0; i < 2; i++) {
        char both[400];
        int status;
        int fd = gb_client(&f);

        snprintf(both, sizeof(both), "%sGET /canned HTTP/1.1\r\nHost: localhost\r\n\r\n", first[i]);
        gb_client_text(fd, both);
        do
            status = gb_client_reply(fd, NULL, 0, NULL, NULL);
        while (status == 100);
        ck_assert_int_eq(status, 200);
        ck_assert_int_eq(gb_client_reply(fd, NULL, 0, NULL, NULL), 200);
        close(fd);
    }
    gb_http_fixture_stop(&f);
}
END_TEST

/* A request behind a chunked body may have been read with it: then the reply says that the connection ends. */
START_TEST(a_request_behind_a_chunked_body_is_answered_or_told) {
    char body[64];
    bool closes;
    int fd;

    gb_http_fixture_start(&f, NULL);
    fd = gb_client(&f);
    gb_client_text(fd, PUT "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" CANARY);
    ck_assert_int_eq(gb_client_reply(fd, body, sizeof(body), NULL, &closes), 200);
    ck_assert_str_eq(body, "5");
    if (closes) {
        ck_assert(gb_client_at_end(fd));
        ck_assert_uint_eq(atomic_load(&f.stored), 5);
    } else {
        ck_assert_int_eq(gb_client_reply(fd, body, sizeof(body), NULL, NULL), 200);
        ck_assert_str_eq(body, "6");
    }
    close(fd);
    gb_http_fixture_stop(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("http framing");

    gb_test_add_loop(suite, "chunks", chunks_are_read_in_pieces_of_any_size, 30, sizeof(bodies) / sizeof(bodies[0]));
    gb_test_add(suite, "bounds", framing_has_bounds, 30);
    gb_test_add(suite, "behind", what_follows_the_body_is_not_read, 30);
    gb_test_add_loop(suite, "heads", heads_are_read_in_one_way_only, 60, sizeof(heads) / sizeof(heads[0]));
    gb_test_add(suite, "cookies", small_cookies_are_refused_once, 30);
    gb_test_add(suite, "endless", framing_without_an_end_is_refused, 30);
    gb_test_add(suite, "kept", chunked_bodies_keep_the_connection, 30);
    gb_test_add(suite, "bytes", chunks_of_a_byte_arrive, 30);
    gb_test_add(suite, "expects", who_expects_100_without_a_body_is_answered, 30);
    gb_test_add(suite, "pipelined", a_request_behind_a_chunked_body_is_answered_or_told, 30);
    return gb_test_run(suite);
}
