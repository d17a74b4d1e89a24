#include "base/digest.h"

#include <errno.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <sys/random.h>

#include "base/encoding.h"

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
