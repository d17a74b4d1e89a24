/* What the files of this folder share: GnuTLS's own values. */
#ifndef GB_TLS_INSIDE_H
#define GB_TLS_INSIDE_H

#include <gnutls/x509.h>

#include "tls/pair.h"

struct gb_tls_pair {
    gnutls_x509_crt_t crt;
    gnutls_x509_privkey_t key;
};

/* An empty pair. Returns NULL with INTERNAL. */
struct gb_tls_pair *gb_tls_pair_new(struct gb_error *err);

/* Sets an error of GnuTLS. Returns -1. */
int gb_tls_error(struct gb_error *err, const char *call, int number);

/* All of a file, NUL-terminated, of at most 1 MiB; freed with gnutls_free(). INVALID_ARGUMENT. */
int gb_tls_read(const char *path, gnutls_datum_t *ret, struct gb_error *err);

#endif
