/* A certificate with its private key: made, signed, written and read. Keys are EC P-256. */
#ifndef GB_TLS_PAIR_H
#define GB_TLS_PAIR_H

#include <gnutls/x509.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "tls/names.h"

enum gb_tls_role { GB_TLS_AUTHORITY, GB_TLS_SERVER, GB_TLS_CLIENT };

#define GB_TLS_DAYS_MAX 3650
#define GB_TLS_SLACK_S 3600 /* before the time at which it is made: clocks of other machines run behind */

struct gb_tls_pair;

struct gb_tls_plan {
    enum gb_tls_role role;
    const char *common_name;          /* at most 64 bytes; more are cut off */
    const struct gb_tls_names *names; /* of a server; may be NULL */
    bool only;                        /* of a renewal: the names that it had go */
    int64_t now_s;                    /* seconds since 1970 */
    uint32_t days;                    /* with the slack before now; never beyond the end of the authority */
};

/* Makes a key and its certificate, signed by the authority; authority NULL: by itself. The caller frees the pair with
 * gb_tls_pair_free(). Returns NULL with INTERNAL, or INVALID_ARGUMENT if the authority has expired or is not an
 * authority. */
struct gb_tls_pair *gb_tls_pair_make(const struct gb_tls_plan *plan, const struct gb_tls_pair *authority,
                                     struct gb_error *err);

/* The same with the key of another pair. Unless the plan says only, the names of that pair come before those of the
 * plan; its common name is used if the plan gives no common name. */
struct gb_tls_pair *gb_tls_pair_renew(const struct gb_tls_plan *plan, const struct gb_tls_pair *old,
                                      const struct gb_tls_pair *authority, struct gb_error *err);

void gb_tls_pair_free(struct gb_tls_pair *pair); /* NULL is permitted */

/* Adds the host names and addresses of the certificate, but those that names may not have. INTERNAL. */
int gb_tls_pair_names(const struct gb_tls_pair *pair, struct gb_tls_names *names, struct gb_error *err);

/* Seconds since 1970 of the end. */
int64_t gb_tls_pair_until(const struct gb_tls_pair *pair);

/* Reads two files. Returns NULL with INVALID_ARGUMENT if they cannot be read or do not belong together. */
struct gb_tls_pair *gb_tls_pair_load(const char *certificate, const char *key, struct gb_error *err);

/* Makes two files of mode 0644 and 0600; neither may exist. Nothing stays of a failure. INTERNAL. */
int gb_tls_pair_save(const struct gb_tls_pair *pair, const char *certificate, const char *key, struct gb_error *err);

/* Puts the certificate in the place of that file, all or nothing. INTERNAL. */
int gb_tls_pair_replace(const struct gb_tls_pair *pair, const char *certificate, struct gb_error *err);

/* What stands in certificates, for people. */

#define GB_TLS_DATE_SIZE 24

/* Prints each certificate of a PEM file: subject, issuer, names, uses, times with the days that are left at now_s, key,
 * serial number and fingerprint. Fails with INVALID_ARGUMENT if the file cannot be read or holds no certificate. */
int gb_tls_show(FILE *out, const char *path, int64_t now_s, struct gb_error *err);

/* "2028-02-27" of seconds since 1970. Returns ret. */
char *gb_tls_date(int64_t time_s, char ret[GB_TLS_DATE_SIZE]);

/* The names of a certificate's file in one line, cut to fit. INVALID_ARGUMENT. */
int gb_tls_names_text(const char *path, char *ret, size_t size, struct gb_error *err);

/* What the files of this folder share: GnuTLS's own values. */

struct gb_tls_pair {
    gnutls_x509_crt_t crt;
    gnutls_x509_privkey_t key;
};

#endif
