/* An upload, for the files that make it up: upload_plan.c says what it needs, upload.c begins, prepare.c queues what
 * comes first, receive.c takes bytes, pipeline.c sends them, commit.c commits, abort.c cleans up. A device write (device_write.c) is an
 * upload whose payload is queued on the lane. */
#ifndef GB_CORE_UPLOAD_UPLOAD_H
#define GB_CORE_UPLOAD_UPLOAD_H

#include "core/buffer/transaction.h"
#include "core/public/upload.h"
#include "core/transfer/transfer.h"
#include "core/upload/device_write.h"
#include "core/upload/group.h"

#define GB_UPLOAD_COPIES 4 /* one that fills, the others under way */

enum gb_device_write_what { GB_DEVICE_WRITE_COPY, GB_DEVICE_WRITE_FILL, GB_DEVICE_WRITE_SYNC };

/* What makes an upload a device write. */
struct gb_device_write {
    enum gb_device_write_what what;
    struct gb_buffer_call *call;
    struct gb_upload *upload;
    struct gb_content *source; /* a reference until the copy is done; NULL: a fill, or the source is all zeros */
    struct gb_buffer_rec source_rec;
    uint64_t from;
    uint64_t pattern;
    unsigned width;
    uint64_t offset;
    bool has_bytes;
    uint64_t bytes;
    enum gb_copy_way way;
    struct gb_error error;
    bool ended; /* nobody is to be told any more */
};

/* What a write needs; pointers are borrowed, under the session's lock. */
struct gb_plan {
    struct gb_buffer *buffer;  /* NULL: a new one */
    struct gb_core_pool *pool; /* the device's own for kinds that have none */
    struct gb_name pool_name;  /* of the buffer; "" for kinds that have none */
    enum gb_kind kind;         /* of the memory that is written */
    uint64_t bytes;            /* of the buffer */
    uint64_t at;               /* where the payload begins */
    uint64_t payload;
    bool merge;    /* bytes of the buffer outside the payload stay */
    bool zero;     /* and they are zeros */
    bool in_place; /* what readers see is overwritten */
    bool mirrored;
    enum gb_side side;
    enum gb_head head;        /* afterwards */
    struct gb_content *place; /* memory that is there is written; NULL: fresh memory */
    struct gb_content *base; /* where the other bytes come from; NULL: they are in place, or zeros, or there are none */
};

struct gb_upload {
    struct gb_core_transfer t; /* first */
    struct gb_upload_params params;
    struct gb_device_write *write; /* NULL: the caller brings the payload */
    struct gb_upload_group *group; /* a reference; NULL: by itself */
    bool unstarted;                /* of a upload group: nothing runs yet */
    bool joined;                   /* it waits there for the others; the upload group's lock */

    /* One of a multipart upload's; see internal.h. The list is the multipart upload's lock's. */
    struct gb_multipart *multipart; /* a reference; NULL: none of this */
    struct gb_upload *target;       /* whose part this is, with a reference; NULL: it is the target */
    struct gb_upload *part_next;
    bool keeps;                       /* what came counts even when the end does not */
    bool arrived;                     /* its range is marked */
    struct gb_buffer_check end_check; /* asked besides params.check */
    struct gb_error refused;          /* the commit; it may be tried again */
    struct gb_store_mark mark;        /* of who completes it */

    /* Decided at the beginning: */
    uint64_t bytes;    /* of the buffer; those of the payload are params.bytes */
    uint64_t at;       /* where in the buffer the payload begins */
    bool merge;        /* bytes of the buffer outside the payload stay */
    enum gb_kind kind; /* of content */
    bool direct;       /* the caller's bytes go into the memory itself */
    bool zero;         /* bytes outside the payload are zeros */
    bool placed;       /* content has its memory already */
    bool mirrored;
    enum gb_side side;      /* of a mirrored buffer: the one that is written */
    enum gb_head head;      /* of a mirrored buffer, afterwards */
    bool mirror_copied;     /* bytes came from the other side */
    struct gb_content *was; /* sync: the side as it was found; compared only */
    struct gb_name pool_name;
    bool in_place; /* content is the buffer's own, and the buffer is marked so until this has ended */
    int64_t base_id;
    int64_t base_generation; /* what a merge is built upon */
    bool counted;            /* a new buffer's place in the quota is reserved; the session's lock */

    struct gb_content *content; /* a reference; the buffer's own after the commit */
    struct gb_content *base;    /* merge: the old bytes, until their copy is queued or done */
    struct gb_content *replaced;
    struct gb_alloc alloc;
    struct gb_task task;
    struct gb_ev *usable;
    bool attached; /* managed memory is in the CPU's hands */
    void (*handed_back)(struct gb_upload *upload, const struct gb_error *error);
    uint64_t prepared_ns;
    enum gb_code blamed; /* gb_upload_blame */

    /* The caller's: */
    uint64_t filled;
    bool touched; /* the buffer's memory may differ from what it was */
    size_t room;
    uint32_t crc;
    struct gb_staged_copy *filling;
    struct gb_staged_copy *unwatched; /* sent, and not watched; the oldest first */
    struct gb_staged_copy *unwatched_last;
    unsigned unwatched_count;
    size_t filling_max;  /* bytes that it is to hold */
    uint64_t filling_ns; /* since when */
    char *scratch;       /* scattered, where the CPU writes: gathered here first */
    size_t scratch_n;

    /* The transfer's lock: */
    bool open;  /* bytes may come */
    bool ended; /* all are there */
    bool committing;
    bool finished;
    unsigned pending; /* watches that must fire before the commit */
    unsigned in_flight;
    struct gb_staged_copy copies[GB_UPLOAD_COPIES];

    struct gb_transaction transaction;
    bool created;
};

static inline struct gb_upload *gb_upload_of(struct gb_core_transfer *transfer) {
    return (struct gb_upload *)transfer;
}

/* upload_plan.c, under the session's lock: says what params and write (may be NULL) need, or why not. */
int gb_plan_make_locked(struct gb_session *session, const struct gb_upload_params *params,
                        struct gb_device_write *write, struct gb_plan *plan, struct gb_error *err);
int gb_plan_mergeable(const struct gb_plan *plan, struct gb_error *err);

/* upload.c: an upload that nothing was queued for yet, with the caller's reference; and its start. */
struct gb_upload *gb_upload_make(struct gb_core *core, const struct gb_upload_params *params,
                                 struct gb_device_write *write, struct gb_error *err);
void gb_upload_start(struct gb_upload *upload);

/* group.c: one of several is there: its copies are done, its commit waits for the others. Takes over a reference of it. */
void gb_upload_group_ready(struct gb_upload *upload);
/* It was committed, and what it replaced is gone. */
void gb_upload_group_finished(struct gb_upload_group *group);
void gb_upload_group_unref(struct gb_upload_group *group);
/* commit.c: after the commit; finished() for it follows. */
void gb_upload_committed(struct gb_upload *upload);

/* upload.c: a device write. write is the upload's from success on; its call is finished at the end. */
int gb_upload_open(struct gb_core *core, const struct gb_upload_params *params, struct gb_device_write *write,
                   struct gb_error *err);

/* device_write.c */
struct gb_device_write *gb_device_write_new(enum gb_device_write_what what,
                                            struct gb_buffer_call *call); /* NULL when memory is exhausted */
void gb_device_write_start(struct gb_core *core, struct gb_upload_params *params, struct gb_device_write *write);
/* Frees it (NULL is accepted) and what the check holds, and finishes the call. error GB_OK: success. */
void gb_device_write_fail(const struct gb_buffer_check *check, struct gb_device_write *write,
                          struct gb_buffer_call *call, const struct gb_error *error);
void gb_device_write_end(struct gb_device_write *write); /* finishes the call, frees */
int gb_device_write_plan(struct gb_device_write *write, const struct gb_upload_params *params, struct gb_plan *plan,
                         struct gb_error *err);
int gb_device_write_check_overlap(const struct gb_device_write *write, const struct gb_plan *plan,
                                  struct gb_error *err);
/* On the lane, after gb_staged_copy_open of staged copies[0]: queues the payload and watches it. */
int gb_device_write_queue(struct gb_upload *upload, struct gb_stream *stream, struct gb_error *err);

/* mirrors.c: may it be synced or released at all? */
int gb_mirror_check(const struct gb_buffer *buffer, struct gb_error *err);

/* prepare.c, on the lane: the memory is there, queues what comes before the payload. */
void gb_upload_allocated(struct gb_alloc *alloc, const struct gb_error *error);
void gb_upload_prepare(struct gb_task *task);

/* commit.c */
/* Something of it is done. Unlocks t.lock; commits what is complete, whose end will wake, else wakes whoever waits. */
void gb_upload_unlock_advance(struct gb_upload *upload);

/* Is what it writes in place still the buffer's? */
bool gb_upload_has_locked(const struct gb_upload *upload, const struct gb_buffer *buffer);

/* upload.c: what a multipart upload's bytes belong to. */
int gb_upload_open_target(struct gb_core *core, const struct gb_upload_params *params, struct gb_multipart *multipart,
                          struct gb_upload **ret, struct gb_error *err);

/* commit.c, of a target. Are its bytes to be written now? 1; 0: wake follows; -1. */
int gb_upload_opened(struct gb_upload *upload, struct gb_error *err);
/* Others have written all of it; gb_upload_end may follow. Takes check (may be NULL). mark: committed with it. */
void gb_upload_fed(struct gb_upload *upload, const struct gb_buffer_check *check, const struct gb_store_mark *mark,
                   uint32_t crc);
/* As gb_upload_result; -1: failed, and when it was refused alone it may be tried again. */
int gb_upload_outcome(struct gb_upload *upload, struct gb_buffer_rec *ret_rec, bool *ret_created,
                      struct gb_transfer_times *ret_times, struct gb_error *err);
bool gb_upload_refused(struct gb_upload *upload);

/* scatter.c: a payload that does not lie side by side. Room in the scratch; the scratch's bytes to their places; so
 * many bytes are to be in a slot; a full slot's copies, between gb_staged_copy_open and _shut. */
int gb_scatter_room_locked(struct gb_upload *upload, void **ret_ptr, struct gb_error *err);
void gb_scatter_fill(struct gb_upload *upload, size_t n);
size_t gb_scatter_slot(const struct gb_upload *upload);
int gb_scatter_queue(struct gb_upload *upload, struct gb_staged_copy *copy, struct gb_error *err);

/* receive.c: sends what stands in a slot on its way. */
int gb_upload_flush(struct gb_upload *upload, struct gb_error *err);

/* pipeline.c, by the caller's thread, without locks. Sends the slot that fills. */
int gb_upload_send(struct gb_upload *upload, struct gb_error *err);
/* Adds what came to the checksum; not yet, where the whole payload comes into the one slot: that is summed up while it is copied. */
void gb_upload_sum(struct gb_upload *upload);
/* Takes back the slots whose copies are done. */
void gb_upload_reap(struct gb_upload *upload);
/* The end of a copy is to wake: watches the oldest, unless one is watched. What goes wrong stands in the transfer. */
void gb_upload_watch_first(struct gb_upload *upload);
/* Nobody will ask any more: watches all. -1: the upload has failed, and nothing of it is loose all the same. */
int gb_upload_watch_rest(struct gb_upload *upload, struct gb_error *err);

/* prepare.c: managed memory goes back to the device; then runs on the lane when that is queued,
 * or cannot be. */
void gb_upload_hand_back(struct gb_upload *upload,
                         void (*then)(struct gb_upload *upload, const struct gb_error *error));

/* abort.c */
void gb_upload_destroy(struct gb_core_transfer *transfer);

#endif
