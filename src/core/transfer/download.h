/* A download: through slots, directly where the CPU reaches the memory, or from the disk if the bytes are there
 * alone. */
#ifndef GB_CORE_TRANSFER_DOWNLOAD_H
#define GB_CORE_TRANSFER_DOWNLOAD_H

#include "core/buffer/order.h"
#include "core/public/buffer.h"
#include "core/transfer/transfer.h"

struct gb_cold;

#define GB_DOWNLOAD_COPIES 2 /* one is sent while one is under way; more would only cool the cache */

/* Copies into one slot. Few enough that other work does not wait long, and CUDA's queue is bounded. */
#define GB_DOWNLOAD_BOXES 64

#define GB_SCRATCH_BYTES (64u * 1024u) /* packed at once by the CPU; still in the cache when they are sent */

struct gb_block {
    struct gb_staged_copy f; /* first */
    size_t sent;
    bool arrived;
    /* The transfer's lock: */
    bool watched;
    bool fired;
    bool abandoned; /* the watch on the copy gives the slot back */
};

struct gb_download {
    struct gb_core_transfer t; /* first */
    struct gb_after after;     /* the earlier write that it sees */
    struct gb_name name;
    uint64_t waited_ns;  /* for that */
    bool held;           /* it has its bytes, or cannot have them; the transfer's lock */
    struct gb_error why; /* then: why not */
    struct gb_buffer_rec rec;
    struct gb_content *content;
    struct gb_stored *stored;    /* a reference to the bytes, if the buffer has them not in memory */
    struct gb_host_block *block; /* a reference to the stored bytes in host memory; NULL: they are on disk */
    struct gb_cold *cold;        /* reads the stored bytes from the disk */
    bool replaced;               /* the stored bytes are gone, because the buffer was written or deleted */
    struct gb_task task;         /* makes the stream's part */
    struct gb_ev *behind;        /* direct: the stream's earlier work */
    bool direct;
    bool started;
    bool silent;                 /* no client downloads, so it is not counted */
    struct gb_view view;         /* of the memory, as a sequence of bytes */
    const struct gb_span *spans; /* of the view */
    unsigned span_count;
    unsigned span;    /* that was located last: they may be many, and are located in their order */
    uint64_t span_at; /* where it begins among all bytes */
    struct gb_span whole;
    uint64_t length; /* of all spans */
    uint64_t queued; /* bytes whose copy was queued */
    uint64_t sent;
    bool copy_may_run; /* a copy failed and may still be under way */
    bool ordered;      /* the stream waits for the content's last write */
    bool asked;        /* behind is recorded, or not needed */
    bool ready;        /* the CPU may read */
    bool watching;     /* an event is watched, or the stream's part is being made */
    char *scratch;     /* where the CPU packs bytes that are not contiguous */
    size_t scratch_n;
    size_t scratch_sent;
    struct gb_block blocks[GB_DOWNLOAD_COPIES];
    unsigned first;
    unsigned count;
};

/* A download of content that the caller holds, without a look-up by name. Takes over the caller's reference to content;
 * NULL stands for a mirrored buffer that was never written. The download adds its own use of the stream. Returns NULL
 * if memory is exhausted. */
struct gb_download *gb_download_of(struct gb_session *session, struct gb_core_stream *stream,
                                   struct gb_content *content, enum gb_kind kind, uint64_t bytes,
                                   struct gb_waker waker);
/* Returns where byte `pos` of the bytes to be sent lies in the view. *ret_left: the bytes from there to the end of its
 * span. */
uint64_t gb_download_locate(struct gb_download *download, uint64_t pos, uint64_t *ret_left);
/* cold.c: as gb_download_next, of stored bytes. */
int gb_download_cold(struct gb_download *download, const void **ret_ptr, size_t *ret_n, struct gb_error *err);
/* Ends the reading. Reads under way free what is left. NULL is accepted. */
void gb_cold_free(struct gb_cold *cold);
/* Queues the first copies, as far as slots are free, before the first call to gb_download_next. */
void gb_download_ahead(struct gb_download *download);

#endif
