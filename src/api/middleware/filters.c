#include "api/middleware/filters.h"

#include <string.h>
#include <strings.h>

#include "base/text.h"

/* --- Content-Encoding --------------------------------------------------------------------------------------------- */

static bool is(const char *text, size_t n, const char *word) {
    return strlen(word) == n && strncasecmp(text, word, n) == 0;
}

static int add_coding(const char *text, size_t n, struct gb_filters *ret, struct gb_error *err) {
    char quoted[GB_WORD_QUOTE_SIZE];
    enum gb_coding coding;

    if (is(text, n, "identity"))
        return 0;
    if (is(text, n, "gzip") || is(text, n, "x-gzip"))
        coding = GB_CODING_GZIP;
    else if (is(text, n, "deflate"))
        coding = GB_CODING_DEFLATE;
    else if (is(text, n, "zstd"))
        coding = GB_CODING_ZSTD;
    else
        return gb_error_set(err, GB_ERR_UNSUPPORTED_MEDIA_TYPE,
                            "the Content-Encoding \"%s\" is not supported here; send %s, or the bytes as they are",
                            gb_word_quote(text, n, quoted), GB_CODINGS_TAKEN);
    if (ret->codings == GB_CODINGS_MAX)
        return gb_error_set(err, GB_ERR_UNSUPPORTED_MEDIA_TYPE, "a body may be encoded %u times, not more",
                            GB_CODINGS_MAX);
    ret->coding[ret->codings++] = coding;
    ret->coded = true;
    return 0;
}

/* Reads one line of the header: a list of codings. */
static int read_line(const char *at, struct gb_filters *ret, struct gb_error *err) {
    while (*at) {
        size_t n = strcspn(at, ",");
        const char *next = at + n + (at[n] == ',');

        while (n > 0 && (*at == ' ' || *at == '\t')) {
            at++;
            n--;
        }
        while (n > 0 && (at[n - 1] == ' ' || at[n - 1] == '\t'))
            n--;
        if (n > 0 && add_coding(at, n, ret, err) < 0)
            return -1;
        at = next;
    }
    return 0;
}

int gb_encoding_read(const struct gb_http_request *request, struct gb_filters *ret, struct gb_error *err) {
    const char *line;
    unsigned at = 0;

    while ((line = gb_http_header_next(request, "Content-Encoding", &at))) {
        if (read_line(line, ret, err) < 0)
            return -1;
    }
    return 0;
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

int gb_filters_read(const struct gb_http_request *request, struct gb_http_response *response, struct gb_filters *ret,
                    struct gb_error *err) {
    *ret = (struct gb_filters){.codings = 0};
    if (gb_encoding_read(request, ret, err) < 0) {
        gb_http_response_header(response, NULL, "Accept-Encoding", "%s", GB_CODINGS_TAKEN);
        return -1;
    }
    return gb_digests_read(request, ret, err);
}

struct gb_http_sink *gb_filters_wrap(struct gb_http_request *request, const struct gb_filters *filters,
                                     struct gb_http_sink *inner, struct gb_error *err) {
    struct gb_http_sink *sink = inner;
    struct gb_http_sink *outer;
    unsigned i;

    for (i = 0; sink && i <= filters->codings; i++) {
        outer = sink;
        if (i < filters->codings)
            outer = gb_encoding_sink_new(request, filters->coding[i], sink, err);
        else if (filters->digests > 0)
            outer = gb_digest_sink_new(request, filters, sink, err);
        if (!outer)
            sink->free(sink); /* and what it holds */
        sink = outer;
    }
    return sink;
}
