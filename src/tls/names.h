/* The host names and addresses that a server's certificate is for. */
#ifndef GB_TLS_NAMES_H
#define GB_TLS_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

#define GB_TLS_NAME_SIZE 254 /* the longest host name, with its NUL */

struct gb_tls_name {
    char text[GB_TLS_NAME_SIZE];
    unsigned char address[16];
    size_t address_bytes; /* 4 or 16; 0: a host name */
};

/* Zero-initialised is empty. */
struct gb_tls_names {
    struct gb_tls_name *items; /* malloc'd */
    size_t count;
};

void gb_tls_names_done(struct gb_tls_names *names);

/* Each adds one, unless it is there. Host names may begin with "*.". INVALID_ARGUMENT, INTERNAL. */
int gb_tls_names_add_host(struct gb_tls_names *names, const char *text, struct gb_error *err);
int gb_tls_names_add_address(struct gb_tls_names *names, const char *text, struct gb_error *err);

/* Adds those of `from` that `without` has not; NULL: an empty list. Fails with INTERNAL. */
int gb_tls_names_add_others(struct gb_tls_names *names, const struct gb_tls_names *from,
                            const struct gb_tls_names *without, struct gb_error *err);

/* Adds what this machine is called and reached by: its name, the same with its domain where that is known, localhost,
 * and the addresses of its interfaces but those of one link. May ask the name server. INTERNAL. */
int gb_tls_names_add_machine(struct gb_tls_names *names, struct gb_error *err);

#endif
