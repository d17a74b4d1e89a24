/* Making requests, and calls of a client: a request is made, performed on the client's connection, and its answer
 * read. */
#ifndef GBC_CLIENT_H
#define GBC_CLIENT_H

#include "client/internal.h"

/* --- requests ----------------------------------------------------------------------------------------------------- */

/* method stays the caller's. path has a % for each name that follows; they are escaped, and none may be NULL or
 * empty. */
void gbc_request_init(struct gbc_request *request, const char *method, const char *path, ...);
void gbc_request_done(struct gbc_request *request);
/* A query parameter; value NULL: none. */
void gbc_query(struct gbc_request *request, const char *key, const char *value);
void gbc_query_u64(struct gbc_request *request, const char *key, uint64_t value);
void gbc_query_true(struct gbc_request *request, const char *key, bool value);
void gbc_header(struct gbc_request *request, const char *name, const char *value); /* NULL: none */
void gbc_how(struct gbc_request *request, const struct gpubuf_how *how);
/* Takes body over (NULL: no memory); it becomes the request's JSON. */
void gbc_json(struct gbc_request *request, json_t *body);
/* The JSON as text, which the caller frees. NULL, with err: body is NULL, memory is lacking, or a text is not UTF-8. */
char *gbc_json_text(const json_t *body, struct gpubuf_error *err);

/* --- calls -------------------------------------------------------------------------------------------------------- */

/* Performs on the client's own connection, fills its answer, ends the request. Then by status: 304 is GPUBUF_UNCHANGED;
 * 202 writes how->ret_operation; else the JSON goes to record(ret), when ret is not NULL. how, record may be NULL. */
int gbc_call(gpubuf_client *client, struct gbc_request *request, const struct gpubuf_how *how, gbc_record_fn *record,
             void *ret, struct gpubuf_error *err);

/* Its first half: performs and fills the answer, the request stays. */
int gbc_ask(gpubuf_client *client, struct gbc_request *request, struct gpubuf_error *err);

/* 0, or -1 with BAD_ANSWER: the JSON of text as a record. */
int gbc_parse(const struct gbc_text *text, gbc_record_fn *record, void *ret, struct gpubuf_error *err);

/* Adds to a JSON object; value NULL, and what is not set, is left out. Lack of memory goes to wrong, so that no request
 * leaves without what the caller said. */
void gbc_put_text(struct gpubuf_error *wrong, json_t *object, const char *key, const char *value);
void gbc_put_u64(struct gpubuf_error *wrong, json_t *object, const char *key, uint64_t value);
/* Only where it is. */
void gbc_put_true(struct gpubuf_error *wrong, json_t *object, const char *key, bool value);
/* An index as a number. */
void gbc_put_device(struct gpubuf_error *wrong, json_t *object, const char *key, const char *device);
/* "2,3" as an array, or BAD_ARGUMENT in wrong. */
void gbc_put_shape(struct gpubuf_error *wrong, json_t *object, const char *key, const char *shape);
/* Takes value over; NULL: no memory. */
void gbc_put(struct gpubuf_error *wrong, json_t *object, const char *key, json_t *value);
void gbc_add_text(struct gpubuf_error *wrong, json_t *array, const char *value);

#endif
