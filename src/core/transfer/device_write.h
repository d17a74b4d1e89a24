/* A device write, for the files that implement it. It is an upload whose payload is queued on the lane. */
#ifndef GB_CORE_TRANSFER_DEVICE_WRITE_H
#define GB_CORE_TRANSFER_DEVICE_WRITE_H

#include "core/public/upload.h"
#include "core/transfer/upload.h"

enum gb_device_write_what { GB_DEVICE_WRITE_COPY, GB_DEVICE_WRITE_FILL, GB_DEVICE_WRITE_SYNC, GB_DEVICE_WRITE_RESERVE };

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
    uint64_t capacity; /* RESERVE: of the new memory */
    enum gb_copy_way way;
    struct gb_error error;
    bool ended; /* the upload was freed: later wakes are ignored */
};

/* Makes a device write for the call. Returns NULL if memory is exhausted. */
struct gb_device_write *gb_device_write_new(enum gb_device_write_what what, struct gb_buffer_call *call);
/* Starts the write, which finishes its call at the end. Takes write and params->check.arg in every case. Sets
 * params->waker. */
void gb_device_write_start(struct gb_core *core, struct gb_upload_params *params, struct gb_device_write *write);
/* Frees write (NULL is accepted) and the check's argument, and finishes the call. error GB_OK: success. */
void gb_device_write_fail(const struct gb_buffer_check *check, struct gb_device_write *write,
                          struct gb_buffer_call *call, const struct gb_error *error);

#endif
