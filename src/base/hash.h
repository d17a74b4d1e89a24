/* Digests of secrets and of streams, and random bytes, by GnuTLS; CRC32C by ISA-L. */
#ifndef GB_BASE_HASH_H
#define GB_BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/encoding.h"
#include "base/error.h"

#define GB_SHA256_HEX_SIZE 65

/* SHA-256 of data[0..n) as 64 lower-case hexadecimal digits and a NUL. Returns 0 or -1. Thread-safe. */
int gb_sha256_hex(const void *data, size_t n, char ret_hex[GB_SHA256_HEX_SIZE], struct gb_error *err);

/* --- of streams --------------------------------------------------------------------------------------------------- */

/* By the names of RFC 9530. The numbers are bits of a set. */
enum gb_digest_alg { GB_DIGEST_SHA256, GB_DIGEST_SHA512, GB_DIGEST_ALGS };

#define GB_DIGEST_SIZE_MAX 64
#define GB_BASE64_SIZE_MAX GB_BASE64_SIZE(GB_DIGEST_SIZE_MAX)

struct gb_digest {
    enum gb_digest_alg alg;
    uint8_t bytes[GB_DIGEST_SIZE_MAX];
};

struct gb_digest_set {
    unsigned given; /* bits */
    struct gb_digest digest[GB_DIGEST_ALGS];
};

const char *gb_digest_name(enum gb_digest_alg alg); /* "sha-256" */
size_t gb_digest_size(enum gb_digest_alg alg);
/* False if no one has that name. */
bool gb_digest_find(const char *name, size_t n, enum gb_digest_alg *ret);
bool gb_digest_equal(const struct gb_digest *a, const struct gb_digest *b);

/* Base64 with padding. Reading takes no other byte than those of the alphabet, and padding may be left out; false when
 * it is not exactly a digest of that algorithm. */
void gb_digest_text(const struct gb_digest *digest, char ret[GB_BASE64_SIZE_MAX]);
bool gb_digest_parse(enum gb_digest_alg alg, const char *text, size_t n, struct gb_digest *ret);

struct gb_hash;
struct gb_hash *gb_hash_new(enum gb_digest_alg alg, struct gb_error *err);
/* 0 or -1. */
int gb_hash_add(struct gb_hash *hash, const void *data, size_t n, struct gb_error *err);
/* Of all that was added; the hash begins again. */
void gb_hash_get(struct gb_hash *hash, struct gb_digest *ret);
void gb_hash_free(struct gb_hash *hash); /* NULL is accepted */

/* --- chance ------------------------------------------------------------------------------------------------------- */

/* Fills out[0..n) with random bytes fit for secrets. Returns 0 or -1. */
int gb_random(void *out, size_t n, struct gb_error *err);

/* --- CRC32C ------------------------------------------------------------------------------------------------------- */

/* Castagnoli's, as iSCSI and SSE4.2 compute it. The arithmetic is ISA-L's. */

/* Continues crc (0 at the start) over data[0..n). gb_crc32c(0, "123456789", 9) == 0xe3069283. */
uint32_t gb_crc32c(uint32_t crc, const void *data, size_t n);

/* The checksum of A followed by B, from those of A and B; n: bytes of B. */
uint32_t gb_crc32c_join(uint32_t a, uint32_t b, uint64_t n);

#endif
