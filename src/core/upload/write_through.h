/* The payload of a durable upload goes to the disk as it comes: from the slots, or from memory that the CPU reaches. */
#ifndef GB_CORE_UPLOAD_WRITE_THROUGH_H
#define GB_CORE_UPLOAD_WRITE_THROUGH_H

#include "core/stored/tee.h"

struct gb_upload;
struct gb_upload_draft;

#define GB_WRITE_THROUGH_PIECES 4 /* of memory that the CPU reaches, at once */

struct gb_write_through {
    struct gb_tee *tee; /* NULL: the bytes are not durable, or they are read back from memory at the commit */
    int64_t new_id;     /* reserved for a new buffer; 0: none */
    char *kept;         /* so few bytes that the database takes them, as they came; NULL: they are read back */
    size_t kept_bytes;

    uint64_t sent; /* bytes in slots that were given to the tee; the caller's thread */

    /* Of memory that the CPU reaches; the transfer's lock: */
    struct gb_write_through_piece {
        struct gb_tee_piece piece;
        struct gb_upload *upload;
        bool running;
    } pieces[GB_WRITE_THROUGH_PIECES];
    uint64_t ready; /* bytes that are there */
    uint64_t given; /* of them, to the tee */
};

/* For an upload that is being made: begins the tee if all of the payload is new and durable, or keeps so few bytes. The
 * session's lock is held. */
void gb_write_through_begin_locked(struct gb_upload *upload, const struct gb_upload_draft *draft);

/* The next n bytes, of those that are kept, have come and lie at ptr. [the caller's thread] */
void gb_write_through_keep(struct gb_upload *upload, const void *ptr, size_t n);

/* All bytes, if they came by this upload and were kept; the caller's, to free. NULL: they did not. */
void *gb_write_through_take_kept(struct gb_upload *upload);

/* The upload may take one more slot: uploads that wait for the disk leave slots to the others. The transfer's lock is
 * held. */
bool gb_write_through_may_take(const struct gb_upload *upload);

/* More of the memory is filled: upload->filled bytes. [the caller's thread] */
void gb_write_through_filled(struct gb_upload *upload);

#endif
