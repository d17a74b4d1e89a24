/* Several downloads as one: the bytes of many buffers, of one moment, one after the other. Included by core.h. */
#ifndef GB_CORE_BUNDLE_H
#define GB_CORE_BUNDLE_H

struct gb_bundle;

/* [now] Holds the present bytes of all the buffers, under one hold of the session's lock, against replacement and deletion;
 * touches no device. lenient: those that are not there are left out. BUFFER_NOT_FOUND, BUFFER_BUSY, BUFFER_PARTIAL,
 * CONTENT_LOST, each naming the buffer. */
int gb_bundle_open(struct gb_core *core, const struct gb_name *session, const struct gb_name *names, size_t count,
                   bool lenient, const struct gb_name *stream, void (*wake)(void *arg), void *arg,
                   struct gb_bundle **ret, struct gb_error *err);
size_t gb_bundle_count(const struct gb_bundle *bundle);
/* Valid until the start. */
const struct gb_buffer_rec *gb_bundle_record(const struct gb_bundle *bundle, size_t i);
/* Once: the bytes are given in this order, a permutation of [0, count). */
int gb_bundle_start(struct gb_bundle *bundle, const size_t *order, struct gb_error *err);
/* As the functions of a download. The copies of the next buffers are in flight while one is sent. */
int gb_bundle_next(struct gb_bundle *bundle, const void **ret_ptr, size_t *ret_n, struct gb_error *err);
void gb_bundle_sent(struct gb_bundle *bundle, size_t n);
void gb_bundle_pause(struct gb_bundle *bundle);
void gb_bundle_times(const struct gb_bundle *bundle, struct gb_transfer_times *ret);
void gb_bundle_free(struct gb_bundle *bundle);

#endif
