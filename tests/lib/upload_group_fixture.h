/* Several buffers at once, up and down, made to wait: 0, or -1 with err. */
#ifndef JOINT_FIXTURE_H
#define JOINT_FIXTURE_H

#include "core_fixture.h"

struct core_part {
    const char *name;
    uint64_t bytes;
};

/* uint8 buffers of the session "default". */
struct core_parts {
    const struct core_part *parts;
    size_t count;
    enum gb_kind kind;
};

uint64_t core_parts_bytes(const struct core_parts *parts);
int core_joint_begin(struct gb_core *core, const struct core_parts *parts, struct core_wake *w,
                     struct gb_upload_group **ret, struct gb_error *err);
int core_joint_send(struct gb_upload_group *group, struct core_wake *w, const void *data, size_t n,
                    struct gb_error *err);
/* Ends it and waits. */
int core_joint_finish(struct gb_upload_group *group, struct core_wake *w, struct gb_error *err);
/* All of it. */
int core_joint(struct gb_core *core, const struct core_parts *parts, const void *data, struct gb_error *err);

/* Reads all of the buffers, in the order of parts backwards, into out in the order of parts. */
int core_bundle(struct gb_core *core, const struct core_parts *parts, void *out, struct gb_error *err);

#endif
