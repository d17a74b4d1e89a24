/* The payload of a durable upload goes to the disk as it comes: from the slots, or from memory that the CPU reaches. */
#ifndef GB_CORE_UPLOAD_WRITE_THROUGH_H
#define GB_CORE_UPLOAD_WRITE_THROUGH_H

#include "core/stored/tee.h"

struct gb_upload;
struct gb_upload_draft;

struct gb_write_through {
    struct gb_tee *tee; /* NULL: the bytes are not durable, or they are read back from memory at the commit */
    int64_t new_id;     /* reserved for a new buffer; 0: none */

    /* Of memory that the CPU reaches: */
    struct gb_tee_piece piece;
    uint64_t ready; /* bytes that are there; the transfer's lock, as the two below */
    uint64_t given; /* of them, to the tee */
    bool running;   /* the piece is */
};

/* For an upload that is being made: begins the tee if all of the payload is new and durable. The session's lock is
 * held. */
void gb_write_through_begin_locked(struct gb_upload *upload, const struct gb_upload_draft *draft);

/* The upload may take one more slot: uploads that wait for the disk leave slots to the others. The transfer's lock is
 * held. */
bool gb_write_through_may_take(const struct gb_upload *upload);

/* More of the memory is filled: upload->filled bytes. [the caller's thread] */
void gb_write_through_filled(struct gb_upload *upload);

#endif
