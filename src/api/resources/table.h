/* The tables of buffers that hold many tensors: read from the buffers' own bytes, and kept while they are asked for. */
#ifndef GB_API_RESOURCES_TABLE_H
#define GB_API_RESOURCES_TABLE_H

#include <jansson.h>

#include "core/core.h"
#include "format/table.h"
#include "http/http.h"

struct gb_tables;

struct gb_tables *gb_tables_new(void);         /* NULL: memory is exhausted */
void gb_tables_free(struct gb_tables *tables); /* NULL is accepted */

/* Keeps a reference to the table of the buffer that rec describes. [any thread, never blocks] */
void gb_tables_put(struct gb_tables *tables, const struct gb_buffer_rec *rec, struct gb_table *table);
/* A reference to that table, or NULL: gb_tables_read brings it. [any thread, never blocks] */
struct gb_table *gb_tables_find(struct gb_tables *tables, const struct gb_buffer_rec *rec);

/* Makes the table of "tensors", an array of {name, dtype, shape}, and of "metadata", an object of strings (NULL: none).
 * Returns a reference, or NULL with WRONG_TYPE or INVALID_ARGUMENT. */
struct gb_table *gb_tables_make(const json_t *tensors, const json_t *metadata, struct gb_error *err);

/* Reads the table of the buffer that the request's path names, as it is on the stream. new: NULL with *err. go_on: 1
 * when gb_tables_find has it, or it is no table any more; 0: the request is woken; -1: UNSUPPORTED_ARRAY if the bytes
 * at the beginning of the buffer are no table. */
struct gb_table_reading;
struct gb_table_reading *gb_table_reading_new(struct gb_http_request *request, const struct gb_name *stream,
                                              struct gb_error *err);
int gb_table_reading_go_on(struct gb_http_request *request, struct gb_table_reading *reading, struct gb_error *err);
void gb_table_reading_free(struct gb_table_reading *reading); /* NULL is accepted */

/* The same for a handler without a body, which then runs from its start. What the request has as its state is freed
 * before. UNSUPPORTED_ARRAY if the bytes at the beginning of the buffer are no table any more. */
enum gb_step gb_tables_read(struct gb_http_request *request, const struct gb_name *stream, gb_http_handler *handler,
                            struct gb_http_response *response, struct gb_error *err);

#endif
