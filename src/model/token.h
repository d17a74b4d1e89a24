/* Tokens and the scopes that they have, and the names of a client's certificate that may stand for a token. */
#ifndef GB_MODEL_TOKEN_H
#define GB_MODEL_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/text.h"

#define GB_SUBJECT_SIZE 256

/* Why no certificate can have this name; NULL: one can. The sentence repeats nothing of the text, which may be a secret
 * in the wrong place. A name is the subject as GnuTLS writes it after RFC 4514, or dns:, uri:, email: or ip: with a
 * name. */
const char *gb_subject_flaw(const char *text);

/* Checks and copies such a name: 1 to GB_SUBJECT_SIZE - 1 bytes without control characters, and without a flaw.
 * INVALID_ARGUMENT with what may be meant. */
int gb_subject_parse(const char *text, size_t len, char ret[GB_SUBJECT_SIZE], struct gb_error *err);

/* Rights on data, from the least: verify sees what describes the bytes, read the bytes themselves. Rights to map are
 * apart. */
enum gb_scope {
    GB_SCOPE_VERIFY,
    GB_SCOPE_READ,
    GB_SCOPE_WRITE,
    GB_SCOPE_MAP,
    GB_SCOPE_MAP_WRITE,
    GB_SCOPE_ADMIN,
    GB_SCOPE_FLEET, /* to ask a hub for the directory, as the node that the token is named after */
    GB_SCOPE_COUNT
};
const char *gb_scope_name(enum gb_scope scope);
int gb_scope_parse(const char *name, size_t len, enum gb_scope *ret_scope, struct gb_error *err);

/* Several of them, 1u << enum gb_scope. As text: words between commas. */
#define GB_SCOPES_SIZE 48
int gb_scopes_parse(const char *text, size_t len, unsigned *ret_scopes, struct gb_error *err);
char *gb_scopes_text(unsigned scopes, char *out); /* at least GB_SCOPES_SIZE */
/* admin includes all, write includes read, read includes verify, map-write includes map. */
bool gb_scopes_include(unsigned scopes, enum gb_scope scope);

#define GB_TOKEN_FROM_SIZE 48

struct gb_token_rec {
    int64_t id;          /* never given twice; below 0: the token is of a file */
    struct gb_name name; /* for people */
    char sha256_hex[65]; /* of the secret, which is never stored; "": it has no secret, and the subject stands for it */
    unsigned scopes;     /* what it permits */
    char session[GB_NAME_MAX + 1]; /* only this session; "" for all */
    char prefix[GB_NAME_MAX + 1];  /* only buffers whose names begin with it; "" for all */
    char subject[GB_SUBJECT_SIZE]; /* of the client's certificate that is as good as the secret; "": of none */
    int64_t created_at_us;
    int64_t expires_at_us;              /* 0: never */
    char old_sha256_hex[65];            /* of the secret before the last rotation; "": no such secret */
    int64_t old_until_us;               /* that one is valid until then */
    int64_t used_at_us;                 /* 0: never */
    char used_from[GB_TOKEN_FROM_SIZE]; /* the address; "": a UNIX socket */
};

/* The last use of a token. */
struct gb_token_use {
    int64_t id; /* of the token */
    int64_t at_us;
    char from[GB_TOKEN_FROM_SIZE];
};

#endif
