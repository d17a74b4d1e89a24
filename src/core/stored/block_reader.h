/* Bytes of a file into memory, by several threads of the disk: checksums of one chunk are computed while another is
 * read. Embedded by its owner, which uses it from one thread of the disk at a time. */
#ifndef GB_CORE_STORED_BLOCK_READER_H
#define GB_CORE_STORED_BLOCK_READER_H

#include "core/stored/stored.h"

#define GB_BLOCK_READER_THREADS 4

struct gb_block_reader {
    struct gb_core *core;
    struct gb_stored *stored;    /* borrowed, as file */
    struct gb_disk_reader *file; /* whose descriptor the threads share */
    const struct gb_lane *lane;  /* of the owner's thread */
    void (*done)(void *arg);     /* on a thread of the disk, under the lock below: what was begun is over */
    void *arg;

    struct gb_block_reader_worker {
        struct gb_task task;
        struct gb_block_reader *owner;
        struct gb_disk_reader *reader; /* its own; NULL: not made yet */
    } workers[GB_BLOCK_READER_THREADS];
    char *ptr;
    size_t n;
    uint64_t at;
    size_t chunk;
    pthread_mutex_t lock; /* for all below */
    size_t next;          /* of the n bytes: where the next chunk begins */
    unsigned running;
    struct gb_error error; /* of the first chunk that failed: no other begins */
};

/* Nothing is read yet. The file and the stored bytes must live until gb_block_reader_close. */
void gb_block_reader_init(struct gb_block_reader *r, struct gb_core *core, struct gb_stored *stored,
                          struct gb_disk_reader *file, const struct gb_lane *lane, void (*done)(void *arg), void *arg);
/* Nothing runs. One that is all zeros is accepted. */
void gb_block_reader_close(struct gb_block_reader *r);

/* Whether they are blocks of a file: they begin with one of GB_STORED_BLOCK_BYTES, and end with one or with the bytes.
 * Others cannot be read so. */
bool gb_block_reader_may(const struct gb_stored *stored, uint64_t at, size_t n);
/* Reads n bytes from `at` and compares the checksums of their blocks. This thread reads as well, until nothing is left
 * for it. done comes unless it was the last to end. */
void gb_block_reader_begin(struct gb_block_reader *r, void *ptr, size_t n, uint64_t at);
/* The same by other threads alone. done comes. */
void gb_block_reader_post(struct gb_block_reader *r, void *ptr, size_t n, uint64_t at);
/* 1: the bytes are there; 0: some thread reads still, and done comes; -1: as gb_disk_read, or CONTENT_DAMAGED. err may
 * be NULL. */
int gb_block_reader_result(struct gb_block_reader *r, struct gb_error *err);

#endif
