/* URLs of HTTP servers. libcurl speaks HTTP; redirects are followed here, to permitted origins alone. The first request
 * asks for the first bytes. A server that answers with a range and a strong entity tag is read by ranges of that
 * version, over any number of connections. Of any other the whole is asked for, over one. Nothing that a source sends
 * is trusted: lengths, ranges and tags of all answers are compared. A query of the URL is sent byte for byte and shows
 * in no error. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/text.h"
#include "curl/request.h"
#include "source/source.h"
#include "source/way.h"

#define FIRST_BYTES (256u << 10)
#define HOPS_MAX 5
#define CONNECT_MS 10000
#define TURN_MS 1000
#define AHEAD_FIRST (16u << 10)
#define AHEAD_MAX (1u << 20) /* twice what libcurl receives in one go */
#define SAID_MAX 4096        /* bytes of a refusal that are read */
#define SAID_SIZE 200
#define HEADERS_MAX (256u << 10) /* of one request, trailers too, which libcurl keeps; its own limit is above this */

struct url {
    struct gb_way way; /* first */
    char *url;
    char origin[GB_PULL_ORIGIN_SIZE];
    char **headers;
    size_t header_count;
    char **permitted;
    size_t permitted_count;
};

/* What of an answer's head counts. */
struct head {
    bool whole;
    int status;
    bool has_length;
    uint64_t length;
    bool wrong_length; /* it is no number, or there are two */
    bool chunked;      /* the length does not count */
    bool coded;
    bool has_range;
    bool of_unknown; /* the range is of a total that is not told */
    uint64_t first;
    uint64_t last;
    uint64_t total;
    char tag[GB_PULL_TAG_SIZE];
    bool named;
    struct gb_digest_set told;
    bool contradicts; /* two digests of one kind are told */
    char location[GB_SOURCE_URL_MAX + 1];
};

struct url_conn {
    struct gb_way_conn conn; /* first */
    struct gb_http_client *client;
    struct gb_http_ask ask;
    bool open; /* a request runs, or has ended with bytes that were not read */
    bool done;
    char origin[GB_PULL_ORIGIN_SIZE];
    struct head head;
    size_t headers_n;    /* bytes of all headers of this request */
    const char *refuses; /* why a header ended the request; NULL: none did */
    uint64_t heard_ns;
    bool spoke;         /* something of this answer has come */
    uint64_t waited_ns; /* while answers came, of all requests, since the rate was looked at */
    uint64_t came;      /* bytes in that time, with headers */
    uint64_t at;        /* of the source: the next byte that read gives */
    uint64_t end;       /* where the answer ends; GB_UNLIMITED: not known */
    char *ahead;        /* bytes that came and were not read */
    size_t ahead_room;
    size_t ahead_n;
    size_t ahead_at;
    bool no_memory;
};

/* --- heads -------------------------------------------------------------------------------------------------------- */

static bool is_named(const char *line, size_t n, const char *name, const char **ret, size_t *ret_n) {
    size_t len = strlen(name);

    if (n <= len || line[len] != ':' || strncasecmp(line, name, len) != 0)
        return false;
    for (line += len + 1, n -= len + 1; n > 0 && (line[0] == ' ' || line[0] == '\t'); line++)
        n--;
    while (n > 0 && (line[n - 1] == ' ' || line[n - 1] == '\t'))
        n--;
    *ret = line;
    *ret_n = n;
    return true;
}

/* bytes 0-99/1000, or with * for the total. */
static void read_range(const char *s, size_t n, struct head *ret) {
    const char *dash = memchr(s, '-', n);
    const char *slash = memchr(s, '/', n);
    const char *end = s + n;

    if (n < 6 || strncasecmp(s, "bytes ", 6) != 0 || !dash || !slash || slash < dash)
        return;
    ret->of_unknown = end - slash == 2 && slash[1] == '*';
    ret->has_range =
        gb_parse_u64(s + 6, (size_t)(dash - s - 6), &ret->first) == GB_PARSE_OK &&
        gb_parse_u64(dash + 1, (size_t)(slash - dash - 1), &ret->last) == GB_PARSE_OK && ret->first <= ret->last &&
        (ret->of_unknown || (gb_parse_u64(slash + 1, (size_t)(end - slash - 1), &ret->total) == GB_PARSE_OK &&
                             ret->last < ret->total && ret->total <= INT64_MAX));
}

/* A weak tag, or one that cannot be sent back, is none. */
static void read_tag(const char *s, size_t n, struct head *ret) {
    size_t i;

    ret->tag[0] = '\0';
    if (n < 2 || n >= sizeof(ret->tag) || s[0] != '"' || s[n - 1] != '"')
        return;
    for (i = 1; i + 1 < n; i++)
        if (s[i] < '!' || s[i] > '~' || s[i] == '"')
            return;
    memcpy(ret->tag, s, n);
    ret->tag[n] = '\0';
}

static void read_digest(enum gb_digest_alg alg, const char *s, size_t n, struct head *ret) {
    struct gb_digest digest;

    if (!gb_digest_parse(alg, s, n, &digest))
        return;
    ret->contradicts =
        ret->contradicts || (ret->told.given & 1u << alg && !gb_digest_equal(&digest, &ret->told.digest[alg]));
    ret->told.digest[alg] = digest;
    ret->told.given |= 1u << alg;
}

/* sha-256=:BASE64:, sha-512=:BASE64: of all of the bytes, also beside a range of them. */
static void read_digests(const char *s, size_t n, struct head *ret) {
    const char *end = s + n;

    while (s < end) {
        const char *comma = memchr(s, ',', (size_t)(end - s));
        const char *stop = comma ? comma : end;
        const char *equals = memchr(s, '=', (size_t)(stop - s));
        enum gb_digest_alg alg;

        while (s < stop && (*s == ' ' || *s == '\t'))
            s++;
        if (equals && stop - equals > 3 && equals[1] == ':' && stop[-1] == ':' &&
            gb_digest_find(s, (size_t)(equals - s), &alg))
            read_digest(alg, equals + 2, (size_t)(stop - 1 - (equals + 2)), ret);
        s = comma ? comma + 1 : end;
    }
}

static bool contains(const char *s, size_t n, const char *word) {
    size_t len = strlen(word);
    size_t i;

    for (i = 0; i + len <= n; i++)
        if (strncasecmp(s + i, word, len) == 0)
            return true;
    return false;
}

static void read_field(struct url_conn *c, const char *line, size_t n) {
    struct head *head = &c->head;
    uint64_t number = 0;
    const char *s;
    size_t len;

    if (is_named(line, n, "Content-Length", &s, &len)) {
        head->wrong_length = gb_parse_u64(s, len, &number) != GB_PARSE_OK || number > INT64_MAX || head->wrong_length ||
                             (head->has_length && head->length != number);
        head->has_length = !head->wrong_length;
        head->length = number;
    } else if (is_named(line, n, "Transfer-Encoding", &s, &len)) {
        head->chunked = true;
        if (len != 7 || strncasecmp(s, "chunked", 7) != 0)
            c->refuses = "answers with a coding of the transfer, which was not asked for";
    } else if (is_named(line, n, "Content-Range", &s, &len)) {
        read_range(s, len, head);
    } else if (is_named(line, n, "Content-Encoding", &s, &len)) {
        head->coded = head->coded || len != 8 || strncasecmp(s, "identity", 8) != 0;
    } else if (is_named(line, n, "ETag", &s, &len)) {
        read_tag(s, len, head);
    } else if (is_named(line, n, "Content-Type", &s, &len)) {
        head->named = contains(s, len, "safetensors");
    } else if (is_named(line, n, "Repr-Digest", &s, &len)) {
        read_digests(s, len, head);
    } else if (is_named(line, n, "x-amz-checksum-sha256", &s, &len)) { /* S3's of one part; that of several has a "-" */
        read_digest(GB_DIGEST_SHA256, s, len, head);
    } else if (is_named(line, n, "Location", &s, &len)) {
        snprintf(head->location, sizeof(head->location), "%.*s", len < sizeof(head->location) ? (int)len : 0, s);
    } else if (is_named(line, n, "Retry-After", &s, &len) && gb_parse_u64(s, len, &number) == GB_PARSE_OK) {
        c->conn.retry_after_s = number < 3600 ? (unsigned)number : 3600;
    }
}

static void hear(struct url_conn *c, size_t n) {
    c->heard_ns = gb_clock_ns();
    c->spoke = true;
    c->came += n;
}

/* Each line of each head; that of an interim answer is forgotten at the next. */
static bool on_header(void *arg, const char *line, size_t n) {
    struct url_conn *c = arg;

    hear(c, n);
    c->headers_n += n;
    if (c->headers_n > HEADERS_MAX)
        c->refuses = "sends more headers than are read";
    while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r'))
        n--;
    if (n >= 12 && strncasecmp(line, "HTTP/", 5) == 0) {
        const char *space = memchr(line, ' ', n);

        c->head = (struct head){.whole = false};
        c->conn.retry_after_s = 0;
        c->head.status = space && line + n - space >= 4 ? atoi(space + 1) : 0;
    } else if (n == 0) {
        c->head.whole = c->head.status >= 200;
        c->head.has_length = c->head.has_length && !c->head.chunked;
    } else if (!c->head.whole) { /* not a trailer */
        read_field(c, line, n);
    }
    return !c->refuses;
}

/* Room for n more bytes ahead. */
static bool make_room(struct url_conn *c, size_t n) {
    size_t room = c->ahead_room > 0 ? c->ahead_room : AHEAD_FIRST;
    char *bigger;

    while (room < c->ahead_n + n)
        room *= 2;
    if (room == c->ahead_room)
        return true;
    bigger = realloc(c->ahead, room);
    if (!bigger)
        return false;
    c->ahead = bigger;
    c->ahead_room = room;
    return true;
}

/* Keeps what libcurl has received in one go, which it gives in small pieces; at a pause it copies all that is left. */
static bool on_write(void *arg, const char *data, size_t n) {
    struct url_conn *c = arg;

    hear(c, 0);
    if (c->ahead_at == c->ahead_n)
        c->ahead_at = c->ahead_n = 0;
    if (c->ahead_n > 0 && c->ahead_n + n > AHEAD_MAX) {
        c->ask.pauses = true;
        return true;
    }
    if (!make_room(c, n)) {
        c->no_memory = true;
        return false;
    }
    memcpy(c->ahead + c->ahead_n, data, n);
    c->ahead_n += n;
    c->came += n;
    return true;
}

static void on_done(struct gb_http_ask *ask) {
    ((struct url_conn *)ask->arg)->done = true;
}

/* --- one request -------------------------------------------------------------------------------------------------- */

static void request_end(struct url_conn *c) {
    if (c->open && !c->done)
        gb_http_client_cancel(&c->ask);
    if (c->open)
        free(c->ask.answer);
    c->open = false;
    c->ahead_n = 0;
    c->ahead_at = 0;
}

static enum gb_pull_outcome unreachable(struct url_conn *c, const char *why, struct gb_error *err) {
    gb_error_set(err, GB_ERR_SOURCE_UNREACHABLE, "%s: %s", c->conn.way->name, why);
    request_end(c);
    return GB_PULL_BROKEN;
}

static enum gb_pull_outcome refused(struct url_conn *c, const char *why, struct gb_error *err) {
    gb_error_set(err, GB_ERR_SOURCE_REFUSED, "%s %s", c->conn.way->name, why);
    request_end(c);
    return GB_PULL_FAILED;
}

static enum gb_pull_outcome no_memory(struct url_conn *c, struct gb_error *err) {
    gb_error_set(err, GB_ERR_SATURATED, "no memory for the copy; try again later");
    request_end(c);
    return GB_PULL_FAILED;
}

/* The request has ended before all of its answer came. */
static enum gb_pull_outcome failed(struct url_conn *c, struct gb_error *err) {
    char why[GB_HTTP_WHY_SIZE];

    if (c->refuses)
        return refused(c, c->refuses, err);
    snprintf(why, sizeof(why), "%s", c->ask.said);
    switch (c->ask.outcome) {
    case GB_HTTP_NO_MEMORY:
        if (!c->ask.sent || c->no_memory || c->head.whole)
            return no_memory(c, err);
        /* libcurl says the same of both. */
        return refused(c, "answers with a line that is longer than is read, or memory is short", err);
    case GB_HTTP_NO_HTTP:
    case GB_HTTP_BAD_URL:
        return refused(c, "does not answer as HTTP does", err);
    case GB_HTTP_TLS:
        (void)unreachable(c, why, err);
        return GB_PULL_FAILED; /* it would be the same the next time */
    default:
        return c->no_memory ? no_memory(c, err) : unreachable(c, why, err);
    }
}

/* Waits for more. The time before an answer's first byte does not count: the source may read its disk first. */
static void wait_for_more(struct url_conn *c) {
    uint64_t began_ns = gb_clock_ns();
    bool counts = c->spoke;

    gb_http_client_run(c->client, TURN_MS);
    if (counts)
        c->waited_ns += gb_clock_ns() - began_ns;
}

/* Whether less came than a source has to bring. Only waits count: this side may be the slower one. */
static bool is_slow(struct url_conn *c) {
    uint64_t min_rate = gb_pulls_min_rate(c->conn.way->fetch->pulls);
    bool slow;

    if (c->waited_ns < GB_PULL_SLOW_MS * GB_NS_PER_MS)
        return false;
    slow = (double)c->came / ((double)c->waited_ns / GB_NS_PER_S) < (double)min_rate;
    c->waited_ns = 0;
    c->came = 0;
    return slow;
}

/* Lets the request continue for a while. */
static enum gb_pull_outcome turn(struct url_conn *c, int patience_ms, struct gb_error *err) {
    uint64_t silent_ms = (gb_clock_ns() - c->heard_ns) / GB_NS_PER_MS;
    char why[64];

    if (gb_fetch_ends(c->conn.way->fetch)) {
        request_end(c);
        return GB_PULL_STOPPED;
    }
    if (silent_ms >= (uint64_t)patience_ms) {
        c->conn.silent = true;
        snprintf(why, sizeof(why), "nothing came for %d s", patience_ms / 1000);
        return unreachable(c, why, err);
    }
    if (is_slow(c)) {
        snprintf(why, sizeof(why), "less than %" PRIu64 " bytes a second came for %d s",
                 gb_pulls_min_rate(c->conn.way->fetch->pulls), GB_PULL_SLOW_MS / 1000);
        (void)unreachable(c, why, err);
        return GB_PULL_FAILED; /* what it brings would let it be asked again for ever */
    }
    gb_http_ask_resume(&c->ask);
    if (c->ahead_n == c->ahead_at && !c->done)
        wait_for_more(c);
    return GB_PULL_OK;
}

/* --- the request's headers ---------------------------------------------------------------------------------------- */

struct range {
    bool ranged;
    uint64_t first;
    uint64_t until;
};

static void add_headers(struct url_conn *c, const struct url *u, const char *origin, const struct range *range) {
    char line[80 + GB_PULL_TAG_SIZE];
    size_t i;

    gb_http_ask_header(&c->ask, "Accept-Encoding: identity");
    if (range->ranged) {
        snprintf(line, sizeof(line), "Range: bytes=%" PRIu64 "-%" PRIu64, range->first, range->until - 1);
        gb_http_ask_header(&c->ask, line);
    }
    if (range->ranged && u->way.tag[0] != '\0') {
        snprintf(line, sizeof(line), "If-Match: %s", u->way.tag);
        gb_http_ask_header(&c->ask, line);
    }
    for (i = 0; i < u->header_count && strcmp(origin, u->origin) == 0; i++)
        gb_http_ask_header(&c->ask, u->headers[i]);
}

static enum gb_pull_outcome start(struct url_conn *c, const char *url, const struct range *range,
                                  struct gb_error *err) {
    const struct url *u = (const struct url *)c->conn.way;

    request_end(c);
    c->ask = (struct gb_http_ask){.method = "GET", .url = url, .agent = gb_pulls_agent(u->way.fetch->pulls)};
    c->ask.http1 = true; /* each part has a connection of its own */
    c->ask.large = true;
    c->ask.quick = true;
    c->ask.connect_ms = CONNECT_MS;
    c->ask.header = on_header;
    c->ask.write = on_write;
    c->ask.done = on_done;
    c->ask.arg = c;
    c->head = (struct head){.whole = false};
    c->headers_n = 0;
    c->refuses = NULL;
    c->conn.silent = false;
    c->spoke = false;
    c->done = false;
    c->heard_ns = gb_clock_ns();
    add_headers(c, u, c->origin, range);
    if (gb_http_client_start(c->client, &c->ask) < 0)
        return no_memory(c, err);
    c->open = true;
    return GB_PULL_OK;
}

/* Waits for the head of the answer. */
static enum gb_pull_outcome await_head(struct url_conn *c, struct gb_error *err) {
    enum gb_pull_outcome outcome = GB_PULL_OK;

    while (outcome == GB_PULL_OK && !c->head.whole && !c->done)
        outcome = turn(c, GB_PULL_ANSWER_MS, err);
    if (outcome == GB_PULL_OK && !c->head.whole)
        return failed(c, err);
    if (outcome == GB_PULL_OK && c->head.wrong_length && !c->head.chunked)
        return refused(c, "answers with a length that is no number or beyond all bounds, or with two", err);
    return outcome;
}

/* --- redirects ---------------------------------------------------------------------------------------------------- */

static bool is_redirect(int status) {
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

static bool is_permitted(const struct url *u, const char *origin) {
    size_t i;

    for (i = 0; i < u->permitted_count; i++)
        if (strcmp(u->permitted[i], origin) == 0)
            return true;
    return false;
}

/* Where the answer redirects to, which replaces *url. */
static enum gb_pull_outcome next_hop(struct url_conn *c, char **url, struct gb_error *err) {
    const struct url *u = (const struct url *)c->conn.way;
    char origin[GB_PULL_ORIGIN_SIZE];
    char why[2 * GB_PULL_ORIGIN_SIZE + 64];
    char *next = NULL;

    c->head.location[strcspn(c->head.location, "#")] = '\0';
    if (c->head.location[0] != '\0')
        next = gb_http_url_join(*url, c->head.location);
    if (!next || gb_source_url_read(next, origin, NULL) < 0) {
        free(next);
        return refused(c, "redirects to no URL of http or https, or to a longer one than is read", err);
    }
    free(*url);
    *url = next;
    if (strncmp(c->origin, "https:", 6) == 0 && strncmp(origin, "https:", 6) != 0)
        return refused(c, "redirects from https to http, which is not followed", err);
    if (!is_permitted(u, origin)) {
        snprintf(why, sizeof(why), "redirects to %s", origin);
        gb_error_set(err, GB_ERR_SOURCE_NOT_PERMITTED,
                     "%s %s, from which this daemon may not copy: --pull-from permits it", u->way.name, why);
        request_end(c);
        return GB_PULL_FAILED;
    }
    strcpy(c->origin, origin);
    return GB_PULL_OK;
}

static enum gb_pull_outcome follow(struct url_conn *c, char **url, const struct range *range, struct gb_error *err) {
    enum gb_pull_outcome outcome;
    unsigned hops;

    for (hops = 0;; hops++) {
        outcome = start(c, *url, range, err);
        if (outcome == GB_PULL_OK)
            outcome = await_head(c, err);
        if (outcome != GB_PULL_OK || !is_redirect(c->head.status))
            return outcome;
        if (hops == HOPS_MAX)
            return refused(c, "redirects more than 5 times", err);
        outcome = next_hop(c, url, err);
        if (outcome != GB_PULL_OK)
            return outcome;
    }
}

/* Asks from the URL on, as its redirects may lead elsewhere by now. */
static enum gb_pull_outcome request(struct url_conn *c, const struct range *range, struct gb_error *err) {
    const struct url *u = (const struct url *)c->conn.way;
    char *url = strdup(u->url);
    enum gb_pull_outcome outcome;

    if (!url)
        return no_memory(c, err);
    strcpy(c->origin, u->origin);
    outcome = follow(c, &url, range, err);
    free(url); /* libcurl has a copy */
    return outcome;
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

/* The first words of a body, on one line, without the tags of XML and HTML. */
static void first_words(const char *body, size_t n, char ret[SAID_SIZE]) {
    bool in_tag = false;
    size_t used = 0;
    size_t i;

    for (i = 0; i < n && used + 1 < SAID_SIZE; i++) {
        unsigned char ch = (unsigned char)body[i];
        bool blank = isspace(ch) || ch == '<';

        if (!in_tag && (ch == '\n' || ch == '\r') && used > 0)
            break;
        in_tag = (in_tag || ch == '<') && ch != '>';
        if (blank && used > 0 && ret[used - 1] != ' ')
            ret[used++] = ' ';
        else if (!blank && !in_tag && ch != '>')
            ret[used++] = ch >= ' ' && ch < 0x7f ? (char)ch : '?';
    }
    while (used > 0 && ret[used - 1] == ' ')
        used--;
    ret[used] = '\0';
}

static bool is_transient(int status) {
    return status == 408 || status == 425 || status == 429 || status == 500 || (status >= 502 && status <= 504);
}

/* An answer that brings no bytes. */
static enum gb_pull_outcome refusal(struct url_conn *c, struct gb_error *err) {
    enum gb_pull_outcome outcome = GB_PULL_OK;
    bool transient = is_transient(c->head.status);
    int status = c->head.status;
    char said[SAID_SIZE];

    while (outcome == GB_PULL_OK && c->ahead_n == 0 && !c->done)
        outcome = turn(c, GB_PULL_STALL_MS, NULL);
    if (outcome == GB_PULL_STOPPED)
        return outcome;
    first_words(c->ahead, c->ahead_n < SAID_MAX ? c->ahead_n : SAID_MAX, said);
    request_end(c);
    if (status == 412) {
        gb_error_set(err, GB_ERR_SOURCE_CHANGED, "%s has another version by now than that of the entity tag %s",
                     c->conn.way->name, c->conn.way->tag);
        return GB_PULL_CHANGED;
    }
    gb_error_set(err, transient ? GB_ERR_SOURCE_UNREACHABLE : GB_ERR_SOURCE_REFUSED, "%s answers with %d%s%s",
                 c->conn.way->name, status, said[0] != '\0' ? ": " : "", said);
    return transient ? GB_PULL_BROKEN : GB_PULL_FAILED;
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

/* The whole comes over this connection. */
static enum gb_pull_outcome open_whole(struct url_conn *c, struct gb_error *err) {
    struct gb_way *way = c->conn.way;

    if (c->head.status == 206)
        return refused(c, "answers with a range, and all of it was asked for", err);
    if (c->head.status != 200)
        return refusal(c, err);
    if (c->head.coded)
        return refused(c, "answers with a content coding, which was not asked for", err);
    way->ranged = false;
    way->first = 0;
    way->length = c->head.has_length ? c->head.length : GB_UNLIMITED;
    c->at = 0;
    c->end = way->length;
    return GB_PULL_OK;
}

/* Returns whether the answer to the first range is the beginning of the source, as long as it says. */
static bool is_beginning(const struct url_conn *c) {
    const struct head *head = &c->head;
    uint64_t want = head->total < FIRST_BYTES ? head->total : FIRST_BYTES;

    return head->has_range && !head->of_unknown && head->first == 0 && head->last + 1 == want &&
           (!head->has_length || head->length == want);
}

static enum gb_pull_outcome open_range(struct url_conn *c, struct gb_error *err) {
    struct gb_way *way = c->conn.way;

    if (c->head.coded)
        return refused(c, "answers with a content coding, which was not asked for", err);
    if (!is_beginning(c))
        return refused(c, "answers with another range than the one asked for, or with a length that contradicts it",
                       err);
    way->length = c->head.total;
    way->first = c->head.last + 1;
    /* What has come whole needs no other request. */
    way->ranged = c->head.tag[0] != '\0';
    c->at = 0;
    c->end = way->first;
    return GB_PULL_OK;
}

static enum gb_pull_outcome url_open(struct gb_way *way, struct gb_way_conn *conn, struct gb_error *err) {
    struct range range = {.ranged = true, .first = 0, .until = FIRST_BYTES};
    const struct url *u = (const struct url *)way;
    struct url_conn *c = (struct url_conn *)conn;
    enum gb_pull_outcome outcome;
    bool ranged = true;

    way->tag[0] = '\0';
    way->told.given = 0;
    way->contradicts = false;
    outcome = request(c, &range, err);
    if (outcome != GB_PULL_OK)
        return outcome;
    /* Neither an empty source nor one that cannot be bound to a version is read by ranges. */
    if (c->head.status == 416 || (c->head.status == 206 && c->head.has_range &&
                                  (c->head.of_unknown || (c->head.tag[0] == '\0' && c->head.total > FIRST_BYTES)))) {
        ranged = false;
        outcome = request(c, &(struct range){.ranged = false}, err);
        if (outcome != GB_PULL_OK)
            return outcome;
    }
    way->named = c->head.named ? GB_IMAGE_SAFETENSORS : gb_image_named(u->url, strcspn(u->url, "?#"));
    outcome = c->head.status == 206 && ranged ? open_range(c, err) : open_whole(c, err);
    if (outcome == GB_PULL_OK) {
        strcpy(way->tag, c->head.tag);
        way->told = c->head.told;
        way->contradicts = c->head.contradicts;
    }
    return outcome;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static struct gb_way_conn *conn_new(struct gb_way *way) {
    struct gb_http_tls tls = {.ca = gb_pulls_ca(way->fetch->pulls)};
    struct url_conn *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->conn.way = way;
    c->client = gb_http_client_new(&tls, false);
    if (!c->client) {
        free(c);
        return NULL;
    }
    gb_http_client_also(c->client, way->fetch->stop, way->fetch->halt);
    return &c->conn;
}

static void conn_free(struct gb_way_conn *conn) {
    struct url_conn *c = (struct url_conn *)conn;

    if (!c)
        return;
    request_end(c);
    gb_http_client_free(c->client);
    free(c->ahead);
    free(c);
}

/* The answer has ended as it should. */
static bool is_whole(const struct url_conn *c) {
    return c->done && c->ask.outcome == GB_HTTP_OK && (c->end == GB_UNLIMITED || c->at == c->end);
}

static bool has(struct gb_way_conn *conn, uint64_t at) {
    const struct url_conn *c = (const struct url_conn *)conn;

    if (!c->open || c->at != at)
        return false;
    return c->ahead_n > c->ahead_at || (is_whole(c) && (c->end == GB_UNLIMITED || at == conn->way->length));
}

/* Whether the answer is the range that was asked for, of the version that was opened. */
static enum gb_pull_outcome check_range(struct url_conn *c, uint64_t first, uint64_t until, struct gb_error *err) {
    const struct gb_way *way = c->conn.way;
    const struct head *head = &c->head;

    if (head->status != 200 && head->status != 206)
        return refusal(c, err);
    if (strcmp(head->tag, way->tag) != 0) {
        gb_error_set(err, GB_ERR_SOURCE_CHANGED, "%s has the entity tag %s by now, and %s before", way->name,
                     head->tag[0] != '\0' ? head->tag : "of no version", way->tag);
        request_end(c);
        return GB_PULL_CHANGED;
    }
    if (head->coded)
        return refused(c, "answers with a content coding, which was not asked for", err);
    if (head->status == 206 && head->has_range && head->first == first && head->last + 1 == until &&
        head->total == way->length && (!head->has_length || head->length == until - first))
        return GB_PULL_OK;
    return refused(c, "answers with another range than the one asked for, or with another length than before", err);
}

static enum gb_pull_outcome request_range(struct url_conn *c, uint64_t at, uint64_t until, struct gb_error *err) {
    struct range range = {.ranged = true, .first = at, .until = until};
    enum gb_pull_outcome outcome = request(c, &range, err);

    if (outcome == GB_PULL_OK)
        outcome = check_range(c, at, until, err);
    c->at = at;
    c->end = until;
    return outcome;
}

static enum gb_pull_outcome url_wait(struct gb_way_conn *conn, uint64_t at, uint64_t until, struct gb_error *err) {
    struct url_conn *c = (struct url_conn *)conn;
    enum gb_pull_outcome outcome = GB_PULL_OK;

    if (until > conn->way->length)
        until = conn->way->length;
    if (conn->way->ranged && (!c->open || c->at != at || at == c->end))
        outcome = request_range(c, at, until, err);
    else if (!c->open || c->at != at)
        return unreachable(c, "the connection was lost", err);
    c->heard_ns = gb_clock_ns(); /* it was not listened to meanwhile */
    while (outcome == GB_PULL_OK && c->ahead_n == c->ahead_at && !c->done)
        outcome = turn(c, GB_PULL_STALL_MS, err);
    if (outcome != GB_PULL_OK || c->ahead_n > c->ahead_at || is_whole(c))
        return outcome;
    if (c->ask.outcome == GB_HTTP_OK)
        return unreachable(c, "its answer ended before its last byte", err);
    return failed(c, err);
}

static enum gb_pull_outcome url_read(struct gb_way_conn *conn, uint64_t at, void *room, size_t n, size_t *ret,
                                     struct gb_error *err) {
    struct url_conn *c = (struct url_conn *)conn;
    size_t have = c->ahead_n - c->ahead_at;

    (void)at;
    if (have > c->end - c->at)
        return refused(c, "sends more bytes than it said", err);
    n = n < have ? n : have;
    if (n > 0)
        memcpy(room, c->ahead + c->ahead_at, n);
    c->ahead_at += n;
    c->at += n;
    *ret = n;
    return GB_PULL_OK;
}

/* --- the URL ------------------------------------------------------------------------------------------------------ */

static void url_free(struct gb_way *way) {
    struct url *u = (struct url *)way;

    gb_texts_free(u->headers);
    gb_texts_free(u->permitted);
    free(u->url);
    free(u);
}

static const struct gb_way_kind kind = {.open = url_open,
                                        .conn_new = conn_new,
                                        .conn_free = conn_free,
                                        .has = has,
                                        .wait = url_wait,
                                        .read = url_read,
                                        .free = url_free};

struct gb_way *gb_url_new(struct gb_fetch *fetch, const struct gb_source_params *params) {
    struct url *u = calloc(1, sizeof(*u));

    if (!u)
        return NULL;
    u->way.kind = &kind;
    u->way.fetch = fetch;
    snprintf(u->way.name, sizeof(u->way.name), "the source %.*s", (int)strcspn(params->url, "?#"), params->url);
    u->url = strdup(params->url);
    u->headers = gb_texts_copy(params->headers, params->header_count);
    u->header_count = params->header_count;
    u->permitted = gb_texts_copy(params->permitted, params->permitted_count);
    u->permitted_count = params->permitted_count;
    if (u->url && u->headers && u->permitted && gb_source_url_read(params->url, u->origin, NULL) == 0)
        return &u->way;
    url_free(&u->way);
    return NULL;
}

/* --- what may be asked for ---------------------------------------------------------------------------------------- */

int gb_source_url_read(const char *url, char ret_origin[GB_PULL_ORIGIN_SIZE], struct gb_error *err) {
    struct gb_http_url is = {.path = NULL};
    size_t shown = strcspn(url, "?#");
    bool plain = strlen(url) <= GB_SOURCE_URL_MAX && !strchr(url, '#');
    size_t i;
    int r = 0;

    for (i = 0; url[i] && plain; i++)
        plain = url[i] > ' ' && url[i] <= '~';
    if (plain)
        r = gb_http_url_read(url, &is);
    if (r == -2)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
    if (plain && r == 0 && is.user)
        gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                     "a URL with a name or a password: give 'headers' {\"Authorization\": ...} beside it");
    if (plain && r == 0 && !is.user && is.origin[0] != '\0') {
        strcpy(ret_origin, is.origin);
        free(is.path);
        return 0;
    }
    free(is.path);
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                        "the URL %.*s is not http[s]://HOST[:PORT]/PATH[?QUERY] without blanks and fragment, of at "
                        "most %d bytes",
                        (int)(shown < 128 ? shown : 128), url, GB_SOURCE_URL_MAX);
}

bool gb_source_header_permitted(const char *name, size_t n) {
    /* Of the connection, of what this side asks for, and what would change the meaning of the answer. */
    static const char *const own[] = {"Host",    "Connection",    "Keep-Alive",        "Proxy-Authorization",
                                      "TE",      "Trailer",       "Transfer-Encoding", "Upgrade",
                                      "Range",   "Expect",        "Accept-Encoding",   "Proxy-Connection",
                                      "Cookie2", "HTTP2-Settings"};
    static const char token[] = "!#$%&'*+-.^_`|~";
    size_t i;

    for (i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr(token, name[i]))
            return false;
    for (i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        if (strlen(own[i]) == n && strncasecmp(own[i], name, n) == 0)
            return false;
    return n > 0 && !(n >= 3 && strncasecmp(name, "If-", 3) == 0) && !(n >= 8 && strncasecmp(name, "Content-", 8) == 0);
}
