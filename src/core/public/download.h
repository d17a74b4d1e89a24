/* Bytes out of a buffer. The rules of upload.h on threads and wake hold here too. Comes with core.h. */
#ifndef GB_CORE_PUBLIC_DOWNLOAD_H
#define GB_CORE_PUBLIC_DOWNLOAD_H

#include "core/public/types.h"

struct gb_core;

struct gb_download;

/* [now] Finds the buffer and holds its present bytes against replacement and deletion; touches no device. BUFFER_BUSY,
 * BUFFER_PARTIAL, CONTENT_LOST. */
int gb_download_open(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                     const struct gb_name *stream, void (*wake)(void *arg), void *arg, struct gb_download **ret,
                     struct gb_error *err);
/* [now] The same of a session that is held. */
int gb_download_open_in(struct gb_session *session, const struct gb_name *name, const struct gb_name *stream,
                        void (*wake)(void *arg), void *arg, struct gb_download **ret, struct gb_error *err);
const struct gb_buffer_rec *gb_download_record(const struct gb_download *download);
/* Starts: [offset, offset + length) of the bytes. Once. RANGE_NOT_SATISFIABLE. */
int gb_download_start(struct gb_download *download, uint64_t offset, uint64_t length, struct gb_error *err);

int gb_download_start_view(struct gb_download *download, const struct gb_view *view, const struct gb_span *spans,
                           unsigned count, struct gb_error *err);
/* 1: *ret_n > 0 bytes at *ret_ptr, valid until gb_download_sent covers them; 0: wait for wake; -1. The copy of the next
 * block is in flight meanwhile. */
int gb_download_next(struct gb_download *download, const void **ret_ptr, size_t *ret_n, struct gb_error *err);
void gb_download_sent(struct gb_download *download, size_t n);
/* The client takes nothing now: blocks in slots that others wait for are let go and copied again later. What next gave
 * is void. */
void gb_download_pause(struct gb_download *download);
/* Times so far; complete once everything was given. */
void gb_download_times(const struct gb_download *download, struct gb_transfer_times *ret);
/* complete: every byte reached the client, for the counters. wake is not called after this returns. NULL accepted. */
void gb_download_free(struct gb_download *download, bool complete);

#endif
