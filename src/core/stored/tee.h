/* A file that is written while its bytes come: each piece of an upload goes to the device and, by a tee, to the disk.
 *
 * Several threads of the disk write: the checksums of one piece are computed while another is written. The file has a
 * name of its own until the commit, which knows the generation. */
#ifndef GB_CORE_STORED_TEE_H
#define GB_CORE_STORED_TEE_H

#include "core/runtime/runtime.h"
#include "disk/disk.h"

struct gb_tee;

/* A piece of the bytes. The owner embeds it and keeps the memory until done. Pieces that are none of
 * gb_disk_is_piece come in their order. */
struct gb_tee_piece {
    const void *ptr;
    size_t n;
    uint64_t at; /* of the bytes */
    /* On a thread of the disk, without locks; others may be done before. error NULL: it is written. */
    void (*done)(struct gb_tee_piece *piece, const struct gb_error *error);
    struct gb_tee_piece *next;
};

/* Touches no disk. NULL if memory or threads are exhausted: then there is no tee. */
struct gb_tee *gb_tee_new(struct gb_core *core, int64_t buffer_id, uint64_t bytes);

/* Queues the piece. [any thread, never blocks] */
void gb_tee_write(struct gb_tee *tee, struct gb_tee_piece *piece);

int64_t gb_tee_buffer_id(const struct gb_tee *tee);

/* All pieces are done. Returns the file, which is the caller's and still to be named, or NULL if it has not all the
 * bytes. */
struct gb_disk_writer *gb_tee_take(struct gb_tee *tee);

/* No piece is queued. Gives up a file that was not taken. NULL is accepted. [any thread, never blocks] */
void gb_tee_free(struct gb_tee *tee);

#endif
