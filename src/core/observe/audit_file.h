/* A file of JSON lines, written by a thread of its own. */
#ifndef GB_CORE_OBSERVE_AUDIT_FILE_H
#define GB_CORE_OBSERVE_AUDIT_FILE_H

#include "base/error.h"
#include "model/audit.h"

struct gb_audit_file;

/* path is copied. bytes_max: a file that has so many becomes path.1, in the place of the one before; 0: no bound. A
 * disk without room is no failure. gb_audit_file_free writes what waits; NULL is accepted. */
int gb_audit_file_new(const char *path, uint64_t bytes_max, struct gb_audit_file **ret, struct gb_error *err);
void gb_audit_file_free(struct gb_audit_file *file);

/* [any thread, never blocks] What finds no room is counted. */
void gb_audit_file_put(struct gb_audit_file *file, const struct gb_audit_rec *rec);
void gb_audit_file_reopen(struct gb_audit_file *file);

/* *ret_error: why records failed last. Returns how many have. */
uint64_t gb_audit_file_failures(struct gb_audit_file *file, struct gb_error *ret_error);

#endif
