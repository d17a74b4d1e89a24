/* An upload, for the files that make it up: upload.c begins, upload_data.c moves bytes, upload_end.c commits and cleans
 * up. */
#ifndef GB_CORE_UPLOAD_H
#define GB_CORE_UPLOAD_H

#include "core/change.h"
#include "core/transfer.h"

#define GB_UPLOAD_FLIGHTS 4 /* one that fills, the others under way */

struct gb_upload {
    struct gb_transfer t; /* first */
    struct gb_upload_params params;

    /* Decided at the beginning: */
    uint64_t bytes; /* of the buffer; those of the payload are params.bytes */
    uint64_t at;    /* where in the buffer the payload begins */
    bool merge;     /* bytes of the buffer outside the payload stay */
    bool direct;    /* the caller's bytes go into the memory itself */
    bool in_place;  /* content is the buffer's own, and the buffer is marked so until this has ended */
    int64_t base_id;
    int64_t base_generation; /* what a merge is built upon */
    bool counted;            /* a new buffer's place in the quota is reserved; the session's lock */

    struct gb_content *content; /* a reference; the buffer's own after the commit */
    struct gb_content *base;    /* merge into fresh memory: the old bytes, until their copy is queued */
    struct gb_content *replaced;
    struct gb_alloc alloc;
    struct gb_task task;
    struct gb_ev *usable;
    uint64_t prepared_ns;

    /* The caller's: */
    uint64_t filled;
    bool touched; /* the buffer's memory may differ from what it was */
    size_t room;
    uint32_t crc;
    struct gb_flight *filling;

    /* The transfer's lock: */
    bool open;  /* bytes may come */
    bool ended; /* all are there */
    bool committing;
    bool finished;
    unsigned pending; /* watches that must fire before the commit */
    unsigned in_flight;
    struct gb_flight flights[GB_UPLOAD_FLIGHTS];

    struct gb_change change;
    bool created;
};

static inline struct gb_upload *gb_upload_of(struct gb_transfer *transfer) {
    return (struct gb_upload *)transfer;
}

/* upload_prepare.c, on the lane: the memory is there, queues what comes before the payload. */
void gb_upload_allocated(struct gb_alloc *alloc, const struct gb_error *error);
void gb_upload_prepare(struct gb_task *task);

/* upload_end.c */
bool gb_upload_complete_locked(
    struct gb_upload *upload); /* true: the caller must call gb_upload_commit after unlocking */
void gb_upload_commit(struct gb_upload *upload);
void gb_upload_destroy(struct gb_transfer *transfer);

#endif
