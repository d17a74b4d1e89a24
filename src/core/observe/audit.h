/* Parts of the audit: its file, and refusals that repeat themselves. */
#ifndef GB_CORE_OBSERVE_AUDIT_H
#define GB_CORE_OBSERVE_AUDIT_H

#include "base/error.h"
#include "model/audit.h"

/* A file of JSON lines, written by a thread of its own. */

struct gb_audit_file;

/* path is copied. bytes_max: a file of that many bytes becomes path.1, in the place of the one before; 0: no bound. A
 * disk without room is no failure. gb_audit_file_free writes what waits; NULL is accepted. */
int gb_audit_file_new(const char *path, uint64_t bytes_max, struct gb_audit_file **ret, struct gb_error *err);
void gb_audit_file_free(struct gb_audit_file *file);

/* [any thread, never blocks] What finds no room is counted. */
void gb_audit_file_put(struct gb_audit_file *file, const struct gb_audit_rec *rec);
void gb_audit_file_reopen(struct gb_audit_file *file);

/* *ret_error: why records failed last. Returns how many have. */
uint64_t gb_audit_file_failures(struct gb_audit_file *file, struct gb_error *ret_error);

/* Refusals on their way to the audit, and all other requests that changed nothing. A client can cause any number of
 * them, so what repeats is one record with a count, and all together have a share of the rows. */

/* Clients, routes and codes that are counted apart at a time; the one that was refused longest ago gives way. */
#define GB_AUDIT_REFUSALS_MAX 256
/* Records of refusals that may be written at once: below a tenth of what waits for the disk. */
#define GB_AUDIT_REFUSALS_BURST 4096

struct gb_audit_refusals;

/* rows, age_us: what the table keeps, 0 for no bound of the age. Refusals take half of the rows in that time at
 * most. */
int gb_audit_refusals_new(uint64_t rows, int64_t age_us, struct gb_audit_refusals **ret, struct gb_error *err);
void gb_audit_refusals_free(struct gb_audit_refusals *refusals);

/* [any thread, never blocks] A refusal. What is to be recorded now goes into *out, which is zero-initialised: the
 * first of a client, route and code, and what gives way to it. */
void gb_audit_refusals_put(struct gb_audit_refusals *refusals, const struct gb_audit_rec *rec, uint64_t now_ns,
                           struct gb_audit_queue *out);

/* [any thread, never blocks] The same of repetitions that are due, once a second or so. all: what waits as well. */
void gb_audit_refusals_tick(struct gb_audit_refusals *refusals, bool all, uint64_t now_ns, struct gb_audit_queue *out);

#endif
