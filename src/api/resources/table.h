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

/* Long headers. A thread of their own parses them, as no loop of the server may stand still for that long, and together
 * they take a bounded memory: further ones wait. */

#define GB_HEADING_LONG (1u << 20) /* what is longer is read so; most headers are shorter */

struct gb_heading;

/* [now] A header of n bytes. waker: a wait has ended; called on any thread, not after gb_heading_free. NULL: memory is
 * exhausted. */
struct gb_heading *gb_heading_new(struct gb_tables *tables, size_t n, struct gb_waker waker);
/* Returns 1 with the n bytes to be filled, of the head; 0: wait for wake; -1 with SATURATED. */
int gb_heading_room(struct gb_heading *head, char **ret, struct gb_error *err);
/* The bytes are there. least: a file of fewer tensors makes no table. */
void gb_heading_parse(struct gb_heading *head, size_t least);
/* Returns 1 with the table, or with *ret_table NULL and what the header says, which the caller frees; 0: wait for wake;
 * -1 as gb_table_new. Frees the bytes. */
int gb_heading_result(struct gb_heading *head, struct gb_table **ret_table, struct gb_safetensors *ret_file,
                      struct gb_error *err);
/* Gives the memory back, at any time: that of a table counts for as long as the head is there. NULL is accepted. */
void gb_heading_free(struct gb_heading *head);

/* The table's file as uploads in several requests take it, with a reference to the table. */
struct gb_gaps gb_tables_gaps(struct gb_table *table);

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
