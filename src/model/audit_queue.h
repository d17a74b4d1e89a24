/* Records of the audit, packed one behind the other, with their texts. Not thread-safe. */
#ifndef GB_MODEL_AUDIT_QUEUE_H
#define GB_MODEL_AUDIT_QUEUE_H

#include <stdbool.h>
#include <stddef.h>

#include "model/audit.h"

/* Zero-initialised is empty. */
struct gb_audit_queue {
    char *at;
    size_t used;
    size_t size;
    size_t count; /* records */
};

/* Copies the record, but for static texts. False: it would take more than max bytes, or memory is exhausted. */
bool gb_audit_queue_put(struct gb_audit_queue *queue, const struct gb_audit_rec *rec, size_t max);

/* Reads the record at *at (0: the first) and moves *at behind it. The texts stay in the queue. False: there is none. */
bool gb_audit_queue_next(const struct gb_audit_queue *queue, size_t *at, struct gb_audit_rec *ret);

/* Empties it, and gives much memory back. */
void gb_audit_queue_clear(struct gb_audit_queue *queue);
void gb_audit_queue_done(struct gb_audit_queue *queue);

#endif
