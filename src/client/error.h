/* The caller's error: the first one wins. */
#ifndef GBC_ERROR_H
#define GBC_ERROR_H

#include <jansson.h>

#include <gpubuf/gpubuf.h>

/* Makes *err an empty one; every public function begins so. */
void gbc_error_init(struct gpubuf_error *err);

/* Return -1; err may be NULL. */
int gbc_error_set(struct gpubuf_error *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int gbc_error_errno(struct gpubuf_error *err, int code, const char *call, int number);
int gbc_error_memory(struct gpubuf_error *err);

/* Takes over a problem document, or says what stands in for one. text[0..bytes) is the body of an answer with that
 * status. */
int gbc_error_problem(struct gpubuf_error *err, int status, const char *text, size_t bytes);
/* The same of JSON that is parsed; false where it is no problem. */
bool gbc_error_json(struct gpubuf_error *err, const json_t *problem);

#endif
