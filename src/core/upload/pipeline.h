/* The slots of an upload and their copies to the device.
 *
 * A notification that a copy is done costs two changes of thread. The upload therefore queries the event itself when
 * it needs a slot; a copy that it may still query is unwatched. It watches a copy that it will not query again. That is
 * the oldest copy while the upload waits for a slot. It is every copy when the upload has ended, is stalled or is
 * freed, or when slots are scarce. */
#ifndef GB_CORE_UPLOAD_PIPELINE_H
#define GB_CORE_UPLOAD_PIPELINE_H

#include "core/transfer/transfer.h"

#define GB_UPLOAD_COPIES 4     /* one slot fills while the other copies are under way */
#define GB_UPLOAD_COPIES_MAX 8 /* of a role that has several slots filled side by side */
#define GB_UPLOAD_AHEAD 5      /* of them, behind the one whose turn it is */

struct gb_upload;

/* Used by the caller's thread, except where a lock is named. */
struct gb_upload_pipeline {
    struct gb_staged_copy copies[GB_UPLOAD_COPIES_MAX];
    struct gb_staged_copy *filling;                /* the slot that is being filled; NULL: none */
    struct gb_staged_copy *ahead[GB_UPLOAD_AHEAD]; /* slots that are filled after it, of a caller that fills all */
    unsigned ahead_count;
    size_t filling_max;               /* bytes that it is to hold */
    uint64_t filling_ns;              /* when it began to fill */
    struct gb_staged_copy *unwatched; /* queued and not watched; the oldest first */
    struct gb_staged_copy *unwatched_last;
    unsigned unwatched_count;
    unsigned in_flight; /* the transfer's lock */
};

/* Ties the copies to the upload's transfer. Called before all other functions. */
void gb_upload_pipeline_init(struct gb_upload *upload);

/* The functions below run on the caller's thread, without locks unless one is named. */

/* Takes a slot to fill. While copies are under way the upload does not wait in line for a slot, because the end of a
 * copy wakes it. The transfer's lock is held. Returns false if no slot is free; wake follows. */
bool gb_upload_begin_slot_locked(struct gb_upload *upload);
/* Takes slots that are filled after that one, up to so many, unless others may need them. The transfer's lock is held.
 * Returns whether there are so many. */
bool gb_upload_begin_ahead_locked(struct gb_upload *upload, unsigned count);
/* Adds n bytes of the slot being filled to the checksum, and queues the copy of a full slot. Returns 0 or -1. */
int gb_upload_fill_slot(struct gb_upload *upload, size_t n, struct gb_error *err);
/* Queues the copy of the slot being filled, if it holds bytes. Returns 0 or -1. */
int gb_upload_flush(struct gb_upload *upload, struct gb_error *err);
/* Gives back the slot being filled, and those after it, and drops their bytes. */
void gb_upload_drop_slot(struct gb_upload *upload);
/* Takes back the slots whose copies are done. */
void gb_upload_reap(struct gb_upload *upload);
/* Makes the end of a copy wake the caller: watches the oldest copy, unless one is watched. A failure is recorded in the
 * upload. */
void gb_upload_watch_first(struct gb_upload *upload);
/* Watches all unwatched copies, because the upload will not query again. Returns 0; -1: the upload has failed, and even
 * then no copy is left unwatched. */
int gb_upload_watch_rest(struct gb_upload *upload, struct gb_error *err);

#endif
