/* Reads the headers of RFC 9530. */
#include <string.h>

#include "api/middleware/digest.h"
#include "api/middleware/filters.h"
#include "http/message/fields.h"

#define WANTED_MAX 10 /* the strongest preference */

static int malformed(const char *header, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_MALFORMED_REQUEST,
                        "%s is no dictionary of digests; it reads as sha-256=:BASE64:, and so may sha-512", header);
}

/* --- of uploads --------------------------------------------------------------------------------------------------- */

/* A later digest of that name replaces an earlier one. */
static void keep(const char *header, const struct gb_digest *digest, struct gb_filters *ret) {
    unsigned i;

    for (i = 0; i < ret->digests; i++) {
        if (ret->digest[i].header == header && ret->digest[i].digest.alg == digest->alg)
            break;
    }
    ret->digest[i].header = header;
    ret->digest[i].digest = *digest;
    if (i == ret->digests)
        ret->digests++;
}

static int add_line(const char *header, const char *line, struct gb_filters *ret, bool *ret_given,
                    struct gb_error *err) {
    struct gb_field field;
    struct gb_digest digest;
    enum gb_digest_alg alg;
    int r;

    while ((r = gb_field_next(&line, &field)) > 0) {
        *ret_given = true;
        if (!gb_digest_find(field.key, field.key_n, &alg))
            continue;
        if (field.type != GB_FIELD_BYTES || !gb_digest_parse(alg, field.text, field.text_n, &digest))
            return gb_error_set(err, GB_ERR_MALFORMED_REQUEST, "%s: %s is :BASE64: of %zu bytes, and this is not",
                                header, gb_digest_name(alg), gb_digest_size(alg));
        keep(header, &digest, ret);
    }
    return r < 0 ? malformed(header, err) : 0;
}

static int read_header(const struct gb_http_request *request, const char *header, struct gb_filters *ret,
                       struct gb_error *err) {
    unsigned before = ret->digests;
    bool given = false;
    const char *line;
    unsigned at = 0;

    while ((line = gb_http_header_next(request, header, &at))) {
        if (add_line(header, line, ret, &given, err) < 0)
            return -1;
    }
    /* RFC 9530 lets a recipient ignore unknown algorithms. If no algorithm can be checked, the client is told
     * instead. */
    if (given && ret->digests == before)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s names no algorithm that is known here: sha-256, sha-512",
                            header);
    return 0;
}

int gb_digests_read(const struct gb_http_request *request, struct gb_filters *ret, struct gb_error *err) {
    if (read_header(request, "Content-Digest", ret, err) < 0)
        return -1;
    return read_header(request, "Repr-Digest", ret, err);
}

/* --- of downloads ------------------------------------------------------------------------------------------------- */

static int wish_line(const char *header, const char *line, int64_t wish[GB_DIGEST_ALGS], struct gb_error *err) {
    struct gb_field field;
    enum gb_digest_alg alg;
    int r;

    while ((r = gb_field_next(&line, &field)) > 0) {
        if (field.type != GB_FIELD_INTEGER || field.integer < 0 || field.integer > WANTED_MAX)
            return gb_error_set(err, GB_ERR_MALFORMED_REQUEST,
                                "%s gives each algorithm a number from 0 (no) to 10 (best)", header);
        if (gb_digest_find(field.key, field.key_n, &alg))
            wish[alg] = field.integer;
    }
    return r < 0 ? gb_error_set(err, GB_ERR_MALFORMED_REQUEST, "%s is no dictionary; it reads as sha-256=10", header)
                 : 0;
}

int gb_digest_wanted(const struct gb_http_request *request, bool *ret_wanted, enum gb_digest_alg *ret,
                     struct gb_error *err) {
    static const char *const names[] = {"Want-Repr-Digest", "Want-Content-Digest"};
    int64_t best = 0;
    unsigned h;
    unsigned i;

    *ret_wanted = false;
    for (h = 0; h < 2 && !*ret_wanted; h++) {
        int64_t wish[GB_DIGEST_ALGS] = {0};
        const char *line;
        unsigned at = 0;

        while ((line = gb_http_header_next(request, names[h], &at))) {
            if (wish_line(names[h], line, wish, err) < 0)
                return -1;
        }
        for (i = 0; i < GB_DIGEST_ALGS; i++) {
            if (wish[i] <= best)
                continue;
            best = wish[i];
            *ret = (enum gb_digest_alg)i;
            *ret_wanted = true;
        }
    }
    return 0;
}
