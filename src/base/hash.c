/* Digests of secrets and of streams, their text, and checksums of blocks. The arithmetic is GnuTLS's and ISA-L's. All
 * folders call it. */
#include "base/hash.h"

#include <errno.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <isa-l/crc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/encoding.h"

/* --- hash --------------------------------------------------------------------------------------------------------- */

/* Digests of streams, and their text. */

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

/* --- digest ------------------------------------------------------------------------------------------------------- */

int gb_sha256_hex(const void *data, size_t n, char ret_hex[GB_SHA256_HEX_SIZE], struct gb_error *err) {
    unsigned char raw[32];
    int r = gnutls_hash_fast(GNUTLS_DIG_SHA256, data, n, raw);

    if (r < 0) {
        gb_error_native(err, "gnutls", r, gnutls_strerror_name(r), "gnutls_hash_fast");
        return gb_error_set(err, GB_ERR_INTERNAL, "SHA-256 failed: %s", gnutls_strerror(r));
    }
    gb_hex(raw, sizeof(raw), ret_hex);
    return 0;
}

int gb_random(void *out, size_t n, struct gb_error *err) {
    unsigned char *at = out;

    while (n > 0) {
        ssize_t got = getrandom(at, n, 0);

        if (got < 0 && errno != EINTR)
            return gb_error_errno(err, GB_ERR_INTERNAL, "getrandom", errno);
        if (got > 0) {
            at += got;
            n -= (size_t)got;
        }
    }
    return 0;
}

/* --- crc32c ------------------------------------------------------------------------------------------------------- */

/* ISA-L takes the length as an int. */
#define STEP ((size_t)1 << 30)

uint32_t gb_crc32c(uint32_t crc, const void *data, size_t n) {
    unsigned char *at = (unsigned char *)(uintptr_t)data;

    crc = ~crc;
    while (n > 0) {
        size_t step = n < STEP ? n : STEP;

        crc = crc32_iscsi(at, (int)step, crc);
        at += step;
        n -= step;
    }
    return ~crc;
}

/* --- joining ------------------------------------------------------------------------------------------------------ */

/* Remainders modulo the polynomial as CRC registers hold them: the highest bit is the coefficient of x^0. */
#define POLYNOMIAL 0x82f63b78u
#define ONE 0x80000000u
#define X_TO_THE_8 0x00800000u

static uint32_t multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    uint32_t bit;

    for (bit = ONE; bit != 0; bit >>= 1) {
        if (a & bit)
            product ^= b;
        b = b & 1 ? (b >> 1) ^ POLYNOMIAL : b >> 1;
    }
    return product;
}

/* Each byte that follows multiplies the register by x^8. */
uint32_t gb_crc32c_join(uint32_t a, uint32_t b, uint64_t n) {
    uint32_t power = X_TO_THE_8;
    uint32_t shift = ONE;

    for (; n > 0; n >>= 1) {
        if (n & 1)
            shift = multiply(shift, power);
        power = multiply(power, power);
    }
    return multiply(shift, a) ^ b;
}
