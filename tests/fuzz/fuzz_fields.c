/* Structured-field dictionaries and items, and the headers that use them. Any text is refused or parsed within its
 * bounds. A digest that was parsed and written again gives the same text. */
#include <string.h>

#include "api/pipeline/digest.h"
#include "fuzz.h"
#include "http/message/fields.h"

const char *const gb_fuzz_seeds[] = {
    "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:, md5=:AAAA:;q=1",
    "sha-512=10, sha-256=3;a=\"b\\\"c\", unixsum",
    "a=(1 2.5 \"x\" tok/en;p=?1);r=@17, b=-999999999999999, c=%\"f%c3\"",
    "gzip, zstd",
    "?1;x=1;y=\"a;b\"",
    "\"a key\";v=@1",
    NULL,
};

static void read_fields(const char *line, size_t size) {
    const char *at = line;
    struct gb_field field;

    while (gb_field_next(&at, &field) > 0) {
        FUZZ_ASSERT(at >= line && at <= line + size);
        FUZZ_ASSERT(field.key_n > 0 && field.key >= line && field.key + field.key_n <= line + size);
        if (field.type == GB_FIELD_BYTES)
            FUZZ_ASSERT(field.text >= line && field.text + field.text_n < line + size);
        if (field.type == GB_FIELD_INTEGER)
            FUZZ_ASSERT(field.integer <= 999999999999999 && field.integer >= -999999999999999);
    }
}

static void read_item(const char *line, size_t size) {
    struct gb_field field;

    if (gb_field_item(line, &field) < 0)
        return;
    if (field.type == GB_FIELD_BYTES || field.type == GB_FIELD_STRING)
        FUZZ_ASSERT(field.text > line && field.text + field.text_n < line + size);
    if (field.type == GB_FIELD_BOOLEAN)
        FUZZ_ASSERT(field.integer == 0 || field.integer == 1);
    if (field.type == GB_FIELD_INTEGER)
        FUZZ_ASSERT(field.integer <= 999999999999999 && field.integer >= -999999999999999);
}

static void check_filters(const struct gb_filters *filters) {
    char text[GB_BASE64_SIZE_MAX];
    struct gb_digest again;
    unsigned i;

    FUZZ_ASSERT(filters->codings <= GB_CODINGS_MAX && filters->digests <= 2 * GB_DIGEST_ALGS);
    for (i = 0; i < filters->digests; i++) {
        const struct gb_digest *digest = &filters->digest[i].digest;

        gb_digest_text(digest, text);
        FUZZ_ASSERT(gb_digest_parse(digest->alg, text, strlen(text), &again) && gb_digest_equal(digest, &again));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[] = {"Content-Encoding", "Content-Digest", "Repr-Digest", "Want-Repr-Digest"};
    struct gb_http_request *request = calloc(1, sizeof(*request));
    struct gb_http_response *response = calloc(1, sizeof(*response));
    struct gb_error err = GB_ERROR_INIT;
    struct gb_filters filters;
    enum gb_digest_alg alg;
    char *line = malloc(size + 1);
    bool wanted;
    unsigned i;

    FUZZ_ASSERT(request && response && line);
    memcpy(line, data, size);
    line[size] = '\0';
    read_fields(line, strlen(line));
    read_item(line, strlen(line));
    for (i = 0; i < 4; i++) {
        request->headers = 1;
        request->header[0].name = (struct gb_http_text){names[i], strlen(names[i])};
        request->header[0].value = (struct gb_http_text){line, strlen(line)};
        err = GB_ERROR_INIT;
        if (gb_filters_read(request, response, &filters, &err) == 0)
            check_filters(&filters);
        else
            FUZZ_ASSERT(gb_code_status(err.code) == (i == 0 ? 415 : 400));
        err = GB_ERROR_INIT;
        if (gb_digest_wanted(request, &wanted, &alg, &err) < 0)
            FUZZ_ASSERT(err.code == GB_ERR_MALFORMED_REQUEST);
        gb_http_response_done(response);
    }
    free(line);
    free(response);
    free(request);
    return 0;
}
