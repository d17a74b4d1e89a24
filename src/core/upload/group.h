/* Several uploads as one: their bytes come one after the other, their memory is got beforehand, and all buffers become
 * visible in one step, with one commit, or none does. Included by core.h. */
#ifndef GB_CORE_UPLOAD_GROUP_H
#define GB_CORE_UPLOAD_GROUP_H

#include "core/public/call.h"

struct gb_upload_group;

struct gb_upload_group_params {
    struct gb_name session; /* of all */
    size_t count;           /* may be 0 */
    uint64_t bytes;         /* of all payloads */
    /* Says what the i-th in the order of the bytes is to be: all of params but the session, wake and arg; check is not
     * looked at, and a reference to labels goes to the group. Names must differ. 0 or -1. Called from
     * gb_upload_group_begin alone. */
    int (*describe)(void *arg, size_t i, struct gb_upload_params *params, struct gb_error *err);
    void *describe_arg;
    void (*wake)(void *arg); /* as gb_upload_params */
    void *arg;
};

/* [now] Could so many bytes more be had? Asks for the session and its quota alone. */
int gb_upload_group_check(struct gb_core *core, const struct gb_name *session, uint64_t bytes, struct gb_error *err);
/* [now] As gb_upload_begin, for all: quota for all of them is reserved, and all allocations start, or nothing is. */
int gb_upload_group_begin(struct gb_core *core, const struct gb_upload_group_params *params,
                          struct gb_upload_group **ret, struct gb_error *err);
/* As the functions of an upload. What fails for one fails for all, as soon as it is known. */
int gb_upload_group_room(struct gb_upload_group *group, void **ret_ptr, size_t *ret_n, struct gb_error *err);
int gb_upload_group_fill(struct gb_upload_group *group, size_t n, struct gb_error *err);
void gb_upload_group_pause(struct gb_upload_group *group, bool stalled);
int gb_upload_group_end(struct gb_upload_group *group, struct gb_error *err);
/* *ret_times: the copies of all, the queue time of the one that waited longest. */
int gb_upload_group_result(struct gb_upload_group *group, struct gb_transfer_times *ret_times, struct gb_error *err);
/* After that, of the i-th. */
const struct gb_buffer_rec *gb_upload_group_record(const struct gb_upload_group *group, size_t i, bool *ret_created);
void gb_upload_group_blame(struct gb_upload_group *group, enum gb_code why); /* as gb_upload_blame */
void gb_upload_group_free(struct gb_upload_group *group);

#endif
