/* The slots of an upload on their way to the device.
 *
 * A notification that a copy is done costs two changes of thread. The upload therefore queries the event itself when it
 * needs a slot; a copy that it may still query is unwatched. It watches a copy that it will not query again: the oldest
 * while it waits for a slot; all of them when it has ended, stands still or is given up, or when slots are scarce. */
#ifndef GB_CORE_UPLOAD_PIPELINE_H
#define GB_CORE_UPLOAD_PIPELINE_H

#include "core/transfer/transfer.h"

#define GB_UPLOAD_COPIES 4 /* one that fills, the others under way */

struct gb_upload;

/* Used by the caller's thread, except where a lock is named. */
struct gb_upload_pipeline {
    struct gb_staged_copy copies[GB_UPLOAD_COPIES];
    struct gb_staged_copy *filling;   /* the slot that takes bytes; NULL: none */
    size_t filling_max;               /* bytes that it is to hold */
    uint64_t filling_ns;              /* when it began to fill */
    struct gb_staged_copy *unwatched; /* sent, and not watched; the oldest first */
    struct gb_staged_copy *unwatched_last;
    unsigned unwatched_count;
    unsigned in_flight; /* the transfer's lock */
};

/* Before anything else: ties the copies to the upload's transfer. */
void gb_upload_pipeline_init(struct gb_upload *upload);

/* All below: by the caller's thread, without locks. */

/* A slot to fill. False: none is free, and wake follows. The transfer's lock is held. While copies are under way, the end
 * of one wakes; so no place in the line is needed. */
bool gb_upload_begin_slot_locked(struct gb_upload *upload);
/* n bytes came into the slot that fills: sums them up, and sends a full slot. 0 or -1. */
int gb_upload_fill_slot(struct gb_upload *upload, size_t n, struct gb_error *err);
/* Sends the slot that fills, if it holds bytes. 0 or -1. */
int gb_upload_flush(struct gb_upload *upload, struct gb_error *err);
/* Gives back the slot that fills, with what it holds; NULL is accepted. */
void gb_upload_drop_slot(struct gb_upload *upload);
/* Takes back the slots whose copies are done. */
void gb_upload_reap(struct gb_upload *upload);
/* The end of a copy is to wake: watches the oldest, unless one is watched. A failure is recorded in the upload. */
void gb_upload_watch_first(struct gb_upload *upload);
/* The upload will not query again: watches all. -1: the upload has failed; nothing is left unwatched even then. */
int gb_upload_watch_rest(struct gb_upload *upload, struct gb_error *err);

#endif
