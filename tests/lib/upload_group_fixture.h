/* Blocking helpers for upload and download groups; they return 0, or -1 with err. */
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
/* Ends the upload and waits. */
int core_joint_finish(struct gb_upload_group *group, struct core_wake *w, struct gb_error *err);
/* Runs a whole upload group. */
int core_joint(struct gb_core *core, const struct core_parts *parts, const void *data, struct gb_error *err);

/* The same of buffers with these durabilities. */
int core_joint_durable(struct gb_core *core, const struct core_parts *parts, const enum gb_durability *durabilities,
                       const void *data, struct gb_error *err);

/* Reads the buffers in reverse order of parts, into out in the order of parts. */
int core_bundle(struct gb_core *core, const struct core_parts *parts, void *out, struct gb_error *err);

#endif
