/* Digests of streams, and their text. */
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/encoding.h"

static const struct {
    const char *name;
    size_t size;
    gnutls_digest_algorithm_t id;
} algs[GB_DIGEST_ALGS] = {
    [GB_DIGEST_SHA256] = {"sha-256", 32, GNUTLS_DIG_SHA256},
    [GB_DIGEST_SHA512] = {"sha-512", 64, GNUTLS_DIG_SHA512},
};

const char *gb_digest_name(enum gb_digest_alg alg) {
    return algs[alg].name;
}

size_t gb_digest_size(enum gb_digest_alg alg) {
    return algs[alg].size;
}

bool gb_digest_find(const char *name, size_t n, enum gb_digest_alg *ret) {
    unsigned i;

    for (i = 0; i < GB_DIGEST_ALGS; i++) {
        if (strlen(algs[i].name) == n && memcmp(algs[i].name, name, n) == 0) {
            *ret = (enum gb_digest_alg)i;
            return true;
        }
    }
    return false;
}

bool gb_digest_equal(const struct gb_digest *a, const struct gb_digest *b) {
    return a->alg == b->alg && memcmp(a->bytes, b->bytes, algs[a->alg].size) == 0;
}

/* --- text --------------------------------------------------------------------------------------------------------- */

void gb_digest_text(const struct gb_digest *digest, char ret[GB_BASE64_SIZE_MAX]) {
    gb_base64_write(digest->bytes, algs[digest->alg].size, false, ret);
}

bool gb_digest_parse(enum gb_digest_alg alg, const char *text, size_t n, struct gb_digest *ret) {
    ret->alg = alg;
    return gb_base64_exact(text, n, ret->bytes, algs[alg].size);
}

/* --- streams ------------------------------------------------------------------------------------------------------ */

struct gb_hash {
    enum gb_digest_alg alg;
    gnutls_hash_hd_t handle;
};

static int failed(int r, const char *call, struct gb_error *err) {
    gb_error_native(err, "gnutls", r, gnutls_strerror_name(r), call);
    return gb_error_set(err, GB_ERR_INTERNAL, "the digest failed: %s", gnutls_strerror(r));
}

struct gb_hash *gb_hash_new(enum gb_digest_alg alg, struct gb_error *err) {
    struct gb_hash *hash = calloc(1, sizeof(*hash));
    int r;

    if (!hash) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for a digest; try again later");
        return NULL;
    }
    hash->alg = alg;
    r = gnutls_hash_init(&hash->handle, algs[alg].id);
    if (r < 0) {
        failed(r, "gnutls_hash_init", err);
        free(hash);
        return NULL;
    }
    return hash;
}

int gb_hash_add(struct gb_hash *hash, const void *data, size_t n, struct gb_error *err) {
    int r = n > 0 ? gnutls_hash(hash->handle, data, n) : 0;

    return r < 0 ? failed(r, "gnutls_hash", err) : 0;
}

void gb_hash_get(struct gb_hash *hash, struct gb_digest *ret) {
    ret->alg = hash->alg;
    gnutls_hash_output(hash->handle, ret->bytes);
}

void gb_hash_free(struct gb_hash *hash) {
    if (!hash)
        return;
    gnutls_hash_deinit(hash->handle, NULL);
    free(hash);
}
