/* An upload group is several uploads as one. Their payloads come one after the other. Their memory is allocated
 * beforehand. All buffers become visible in one step, with one commit, or none does. Included by core.h. */
#ifndef GB_CORE_UPLOAD_GROUP_H
#define GB_CORE_UPLOAD_GROUP_H

#include "core/public/call.h"

struct gb_upload_group;

struct gb_upload_group_params {
    struct gb_name session; /* of all */
    size_t count;           /* may be 0 */
    uint64_t bytes;         /* of all payloads */
    /* Fills in params for the i-th upload, in the order of the payloads, except session and waker. check is
     * ignored, and the group takes over a reference to labels. Names must differ. Called only by gb_upload_group_begin.
     * Returns 0 or -1. */
    int (*describe)(void *arg, size_t i, struct gb_upload_params *params, struct gb_error *err);
    void *describe_arg;
    struct gb_waker waker; /* as gb_upload_params */
};

/* [now] Checks whether the session's quota permits that many more bytes. Nothing else is checked. */
int gb_upload_group_check(struct gb_core *core, const struct gb_name *session, uint64_t bytes, struct gb_error *err);
/* [now] As gb_upload_begin, for all members: all of their quota is reserved and all allocations start, or none. */
int gb_upload_group_begin(struct gb_core *core, const struct gb_upload_group_params *params,
                          struct gb_upload_group **ret, struct gb_error *err);
/* As the functions of an upload. A failure of one member fails the group at once. */
int gb_upload_group_room(struct gb_upload_group *group, void **ret_ptr, size_t *ret_n, struct gb_error *err);
int gb_upload_group_fill(struct gb_upload_group *group, size_t n, struct gb_error *err);
void gb_upload_group_pause(struct gb_upload_group *group, bool stalled);
int gb_upload_group_end(struct gb_upload_group *group, struct gb_error *err);
/* As gb_upload_result. *ret_times: the copy time of all members, the longest queue time of one. */
int gb_upload_group_result(struct gb_upload_group *group, struct gb_transfer_times *ret_times, struct gb_error *err);
/* The i-th member's record, after gb_upload_group_result returned 1. */
const struct gb_buffer_rec *gb_upload_group_record(const struct gb_upload_group *group, size_t i, bool *ret_created);
void gb_upload_group_blame(struct gb_upload_group *group, enum gb_code why); /* as gb_upload_blame */
void gb_upload_group_free(struct gb_upload_group *group);

#endif
