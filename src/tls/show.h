/* What stands in certificates, for people. */
#ifndef GB_TLS_SHOW_H
#define GB_TLS_SHOW_H

#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

#define GB_TLS_DATE_SIZE 24

/* Prints each certificate of a PEM file: subject, issuer, names, uses, times with the days that are left at now_s,
 * key, serial number and fingerprint. INVALID_ARGUMENT if it cannot be read or has none. */
int gb_tls_show(FILE *out, const char *path, int64_t now_s, struct gb_error *err);

/* "2028-02-27" of seconds since 1970. Returns ret. */
char *gb_tls_date(int64_t time_s, char ret[GB_TLS_DATE_SIZE]);

/* The names of a certificate's file in one line, cut to fit. INVALID_ARGUMENT. */
int gb_tls_names_text(const char *path, char *ret, size_t size, struct gb_error *err);

#endif
