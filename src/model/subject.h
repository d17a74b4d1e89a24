/* The names of a client's certificate that may stand for a token. Included by model.h. */
#ifndef GB_MODEL_SUBJECT_H
#define GB_MODEL_SUBJECT_H

#include <stddef.h>

#include "base/error.h"

#define GB_SUBJECT_SIZE 256

/* Why no certificate can have this name; NULL: one can. The sentence repeats nothing of the text, which may be a secret
 * in the wrong place. A name is the subject as GnuTLS writes it after RFC 4514, or dns:, uri:, email: or ip: with a
 * name. */
const char *gb_subject_flaw(const char *text);

/* Checks and copies such a name: 1 to GB_SUBJECT_SIZE - 1 bytes without control characters, and without a flaw.
 * INVALID_ARGUMENT with what may be meant. */
int gb_subject_parse(const char *text, size_t len, char ret[GB_SUBJECT_SIZE], struct gb_error *err);

#endif
