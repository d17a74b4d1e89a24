/* The audit: which client changed what, and which requests were refused. A record has no secret: no header, no body,
 * and nothing of a query. */
#ifndef GB_MODEL_AUDIT_H
#define GB_MODEL_AUDIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json_writer.h"

/* What is recorded. AUTO: CHANGES while a token is in force, else OFF. */
enum gb_audit_mode { GB_AUDIT_AUTO, GB_AUDIT_OFF, GB_AUDIT_CHANGES, GB_AUDIT_ALL };

enum gb_audit_event {
#define GB_AUDIT_EVENT(name, word) GB_AUDIT_##name,
#include "model/audit_events.def"
#undef GB_AUDIT_EVENT
    GB_AUDIT_EVENTS
};
const char *gb_audit_event_word(enum gb_audit_event event);
/* GB_AUDIT_EVENTS if there is no such word (of a newer daemon). */
enum gb_audit_event gb_audit_event_of(const char *word);

/* The texts of a record, in the order of the columns. Those up to GB_AUDIT_ERROR are static: a queue
 * keeps their address. */
enum gb_audit_text {
    GB_AUDIT_METHOD,
    GB_AUDIT_ROUTE, /* as in the table of routes: "/v1/sessions/{session}" */
    GB_AUDIT_ERROR, /* code of the problem document */
    GB_AUDIT_REQUEST_ID,
    GB_AUDIT_ADDRESS, /* "192.0.2.7", or "unix:UID" */
    GB_AUDIT_TOKEN,   /* name */
    GB_AUDIT_CERTIFICATE,
    GB_AUDIT_SESSION,
    GB_AUDIT_OBJECT, /* name of the buffer, pool and so on; of a token for the events of tokens */
    GB_AUDIT_TEXTS
};
#define GB_AUDIT_STATICS (GB_AUDIT_ERROR + 1)
#define GB_AUDIT_TEXT_MAX 256 /* bytes of a text; longer ones are cut */

/* A record; its texts are borrowed. */
struct gb_audit_rec {
    int64_t id;    /* in the table; rises; 0: it is not there */
    int64_t at_us; /* when the request had ended */
    enum gb_audit_event event;
    int status;       /* 0: the connection ended before the answer was out */
    int64_t token_id; /* 0: none */
    uint64_t bytes;   /* of the body that came, or of the one that went out */
    uint64_t count;   /* refusals that it stands for, 0: one; of a gap: records that are missing, 0: not known */
    const char *text[GB_AUDIT_TEXTS]; /* NULL: does not apply */
};

/* One object, without what does not apply. */
void gb_audit_render(struct gb_json_writer *out, const struct gb_audit_rec *rec);

/* --- queue -------------------------------------------------------------------------------------------------------- */

/* Records of the audit, packed one behind the other, with their texts. Zero-initialised is empty. Not thread-safe. */
struct gb_audit_queue {
    char *at;
    size_t used;
    size_t size;
    size_t count; /* records */
};

/* Copies the record, but for static texts. False: it would take more than max bytes, or memory is exhausted. */
bool gb_audit_queue_put(struct gb_audit_queue *queue, const struct gb_audit_rec *rec, size_t max);

/* Reads the record at *at (0: the first) and moves *at behind it. The texts stay in the queue. False: there is no
 * further record. */
bool gb_audit_queue_next(const struct gb_audit_queue *queue, size_t *at, struct gb_audit_rec *ret);

/* Empties it, and gives much memory back. */
void gb_audit_queue_clear(struct gb_audit_queue *queue);
void gb_audit_queue_done(struct gb_audit_queue *queue);

#endif
