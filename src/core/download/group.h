/* Several downloads as one: the bytes of many buffers, of one moment, one after the other. Included by core.h. */
#ifndef GB_CORE_DOWNLOAD_GROUP_H
#define GB_CORE_DOWNLOAD_GROUP_H

#include "core/public/call.h"

struct gb_download_group;

/* [now] Holds the present bytes of all the buffers, under one hold of the session's lock, against replacement and
 * deletion; touches no device. lenient: those that are not there are left out. BUFFER_NOT_FOUND, BUFFER_BUSY,
 * BUFFER_PARTIAL, CONTENT_LOST, each naming the buffer. */
int gb_download_group_open(struct gb_core *core, const struct gb_name *session, const struct gb_name *names,
                           size_t count, bool lenient, const struct gb_name *stream, struct gb_waker waker,
                           struct gb_download_group **ret, struct gb_error *err);
size_t gb_download_group_count(const struct gb_download_group *group);
/* Valid until the start. */
const struct gb_buffer_rec *gb_download_group_record(const struct gb_download_group *group, size_t i);
/* Once: the bytes are given in this order, a permutation of [0, count). */
int gb_download_group_start(struct gb_download_group *group, const size_t *order, struct gb_error *err);
/* As the functions of a download. The copies of the next buffers are in flight while one is sent. */
int gb_download_group_next(struct gb_download_group *group, const void **ret_ptr, size_t *ret_n, struct gb_error *err);
void gb_download_group_sent(struct gb_download_group *group, size_t n);
void gb_download_group_pause(struct gb_download_group *group);
void gb_download_group_times(const struct gb_download_group *group, struct gb_transfer_times *ret);
void gb_download_group_free(struct gb_download_group *group);

#endif
