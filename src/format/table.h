/* A table of tensors: what lies in a buffer whose dtype is "tensors", and where. Such a buffer's memory begins with the
 * header of a safetensors file, as it came; then each tensor begins at a multiple of GB_TABLE_ALIGN, in the order of
 * the file's bytes, with zeros between. The file is the same without these gaps. Pure, but for the count of
 * references. */
#ifndef GB_FORMAT_TABLE_H
#define GB_FORMAT_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/json_writer.h"
#include "format/safetensors.h"

/* Where a tensor may begin in memory: what cudaMalloc gives, and what kernels load fastest. */
#define GB_TABLE_ALIGN 256

/* Immutable; many readers share it. */
struct gb_table;

/* Reads head[0..n): the length and the header of a file, both whole. Returns a table with one reference, or NULL with
 * UNSUPPORTED_ARRAY (what is wrong, and at which byte of the file), BODY_TOO_LARGE or SATURATED. */
struct gb_table *gb_table_new(const char *head, size_t n, struct gb_error *err);
/* The same of a header that was parsed already, which it takes in every case. */
struct gb_table *gb_table_take(struct gb_safetensors *file, const char *head, size_t n, struct gb_error *err);
struct gb_table *gb_table_ref(struct gb_table *table);
void gb_table_unref(struct gb_table *table); /* NULL is accepted */

/* Of the length and the header: how many bytes the file has of them, and how many the memory, with the gap behind. */
size_t gb_table_head(const struct gb_table *table, const char **ret_text);
uint64_t gb_table_head_room(const struct gb_table *table);

size_t gb_table_count(const struct gb_table *table);
uint64_t gb_table_bytes(const struct gb_table *table);      /* of the memory */
uint64_t gb_table_file_bytes(const struct gb_table *table); /* of the file */
/* What the table itself takes of the process's memory. */
size_t gb_table_size(const struct gb_table *table);

/* The i-th tensor in the order of their bytes. *ret_at: where it begins in memory. */
const struct gb_safetensor *gb_table_tensor(const struct gb_table *table, size_t i, uint64_t *ret_at);
/* Other names of tensors, in the order of these names. Returns the i-th; *ret_of: the tensor's index. */
size_t gb_table_aliases(const struct gb_table *table);
const char *gb_table_alias(const struct gb_table *table, size_t i, size_t *ret_len, size_t *ret_of);
/* Finds a tensor by its name, or by an alias. Returns its index, or -1 with TENSOR_NOT_FOUND. */
int64_t gb_table_find(const struct gb_table *table, const char *name, size_t len, struct gb_error *err);

/* The value of the header's __metadata__, a JSON object of strings as it came. "{}" if the header has none. */
const char *gb_table_metadata(const struct gb_table *table, size_t *ret_n);

/* What of the file's bytes [first, first + length) is at hand: at most one stretch of the memory. The bytes of the
 * header are at the same place in both. *ret_at: where the stretch begins in memory. Returns its length. length > 0,
 * and the range lies within the file. */
uint64_t gb_table_stretch(const struct gb_table *table, uint64_t first, uint64_t length, uint64_t *ret_at);

/* Of memory[at..): how many bytes of the file come next (*ret_gap false) or how many zeros of a gap. More than 0. at is
 * below gb_table_bytes. */
uint64_t gb_table_run(const struct gb_table *table, uint64_t at, bool *ret_gap);

/* Where in the file memory[at] is; of a gap, the bytes that follow it. */
uint64_t gb_table_file_at(const struct gb_table *table, uint64_t at);

#endif
