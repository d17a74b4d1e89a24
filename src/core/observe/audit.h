/* The audit: what is recorded, where it goes, and reading it. Included by core.h. */
#ifndef GB_CORE_OBSERVE_AUDIT_H
#define GB_CORE_OBSERVE_AUDIT_H

#include <stdbool.h>

#include "base/error.h"
#include "core/public/types.h"
#include "model/audit.h"
#include "store/store.h"

struct gb_core;

/* What is recorded now; never AUTO. [now] */
enum gb_audit_mode gb_audit_mode(struct gb_core *core);

/* Copies the record, to the table and to the file. The first one is preceded by daemon.started. [any thread, never
 * blocks] */
void gb_audit_note(struct gb_core *core, const struct gb_audit_rec *rec);

/* The same of a request that was refused or changed nothing, and that the client can repeat at will: repetitions
 * become one record with a count, and all of them have a share of the rows, so that they displace no record of a
 * change. [any thread, never blocks] */
void gb_audit_note_refusal(struct gb_core *core, const struct gb_audit_rec *rec);
/* Records repetitions that are due. About once a second. */
void gb_audit_tick(struct gb_core *core);

/* Whether nothing is ever recorded. [now] */
bool gb_audit_never(const struct gb_core *core);

/* The daemon serves: notes daemon.started if something is recorded now. */
void gb_audit_started(struct gb_core *core);
/* The daemon stops: the last record, if there was a first. No request is served any more. */
void gb_audit_stopped(struct gb_core *core);

/* As gb_store_audit_read. [blocks: on a compute lane] */
int gb_audit_read(struct gb_core *core, const struct gb_audit_query *query, gb_audit_visit_fn *visit, void *arg,
                  int64_t *ret_next, struct gb_error *err);

/* Opens the file again: it was rotated. [any thread, never blocks] */
void gb_audit_reopen(struct gb_core *core);

struct gb_audit_numbers {
    struct gb_audit_log_stat table;
    uint64_t file_failures;     /* records that the file has not taken */
    struct gb_error file_error; /* the latest reason */
};
void gb_audit_numbers(struct gb_core *core, struct gb_audit_numbers *ret);

/* Appends one record to a file, for the commands beside a daemon. A file that root makes gets the owner of dir, which
 * is the daemon's. Returns 0 or -1. */
int gb_audit_append(const char *path, const char *dir, const struct gb_audit_rec *rec, struct gb_error *err);

/* --- the core's --------------------------------------------------------------------------------------------------- */

struct gb_audit;

/* Opens the file. Returns 0 or -1; a disk without room for the file is no failure. gb_audit_free accepts NULL, and
 * writes what waits. */
int gb_audit_new(const struct gb_audit_config *config, struct gb_audit **ret, struct gb_error *err);
void gb_audit_free(struct gb_audit *audit);

#endif
