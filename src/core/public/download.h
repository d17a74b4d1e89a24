/* Downloads: bytes out of a buffer. The rules of upload.h on threads and wake hold here too. Included by core.h. */
#ifndef GB_CORE_PUBLIC_DOWNLOAD_H
#define GB_CORE_PUBLIC_DOWNLOAD_H

#include "core/public/types.h"

struct gb_core;

struct gb_download;

/* [now] Finds the buffer and keeps its present bytes readable, even if the buffer is replaced or deleted. Does not use
 * the device. The caller frees *ret with gb_download_free. Errors: BUFFER_BUSY, BUFFER_PARTIAL, CONTENT_LOST. */
int gb_download_open(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                     const struct gb_name *stream, struct gb_waker waker, struct gb_download **ret,
                     struct gb_error *err);
/* [now] As gb_download_open, in a session that the caller holds. */
int gb_download_open_in(struct gb_session *session, const struct gb_name *name, const struct gb_name *stream,
                        struct gb_waker waker, struct gb_download **ret, struct gb_error *err);
const struct gb_buffer_rec *gb_download_record(const struct gb_download *download);
/* Starts the download of the bytes [offset, offset + length). One start a download. Errors: RANGE_NOT_SATISFIABLE. */
int gb_download_start(struct gb_download *download, uint64_t offset, uint64_t length, struct gb_error *err);
/* As gb_download_start, for the bytes that a view picks (NULL: all bytes), which lie within the buffer. spans picks
 * from the view's sequence, in the order given (NULL: all of it); it is borrowed until gb_download_free. */
int gb_download_start_view(struct gb_download *download, const struct gb_view *view, const struct gb_span *spans,
                           unsigned count, struct gb_error *err);
/* Gives the next bytes; the copy of the block after them is in flight meanwhile. Returns 1 with *ret_n > 0 bytes at
 * *ret_ptr, valid until gb_download_sent covers them; 0: wait for wake; -1. */
int gb_download_next(struct gb_download *download, const void **ret_ptr, size_t *ret_n, struct gb_error *err);
/* After a failure: the buffer was written or deleted before its bytes could be read; another download gets what it has
 * now. */
bool gb_download_replaced(const struct gb_download *download);
void gb_download_sent(struct gb_download *download, size_t n);
/* The client reads nothing now. If other transfers wait for slots, the download releases its own and copies their
 * blocks again later. The bytes that gb_download_next gave are no longer valid. */
void gb_download_pause(struct gb_download *download);
/* The times so far. They are complete when all bytes were given. */
void gb_download_times(const struct gb_download *download, struct gb_transfer_times *ret);
/* Ends the download. complete: every byte reached the client, for the counters. wake is not called after this returns.
 * NULL is accepted. */
void gb_download_free(struct gb_download *download, bool complete);

#endif
