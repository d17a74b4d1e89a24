/* A download, for the files that make it up: download.c, and download_direct.c where the CPU reaches the memory. */
#ifndef GB_CORE_DOWNLOAD_H
#define GB_CORE_DOWNLOAD_H

#include "core/transfer.h"

#define GB_DOWNLOAD_FLIGHTS 2 /* one that is sent, one under way: more would only cool the cache */

struct gb_block {
    struct gb_flight f; /* first */
    size_t sent;
    bool arrived;
    /* The transfer's lock: */
    bool watched;
    bool fired;
    bool abandoned; /* whoever sees the end of the copy gives the slot back */
};

struct gb_download {
    struct gb_transfer t; /* first */
    struct gb_buffer_rec rec;
    struct gb_content *content;
    struct gb_task task;  /* makes the stream's part */
    struct gb_ev *behind; /* straight from memory: what the stream does before */
    bool direct;
    bool started;
    bool silent; /* nobody downloads: not counted */
    uint64_t offset;
    uint64_t length;
    uint64_t queued; /* bytes whose copy was queued */
    uint64_t sent;
    bool unsettled; /* a copy failed, and may be under way all the same */
    bool ordered;   /* the stream waits for the content's last write */
    bool asked;     /* what the stream does before */
    bool ready;     /* the CPU may read */
    bool watching;  /* or the part is being made */
    struct gb_block blocks[GB_DOWNLOAD_FLIGHTS];
    unsigned first;
    unsigned count;
};

/* download_direct.c: as gb_download_next. */
int gb_download_direct(struct gb_download *download, const void **ret_ptr, size_t *ret_n, struct gb_error *err);

#endif
