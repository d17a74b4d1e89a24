#include "upload_group_fixture.h"

#include <stdlib.h>
#include <string.h>

uint64_t core_parts_bytes(const struct core_parts *parts) {
    uint64_t bytes = 0;
    size_t i;

    for (i = 0; i < parts->count; i++)
        bytes += parts->parts[i].bytes;
    return bytes;
}

struct described {
    const struct core_parts *parts;
    const enum gb_durability *durabilities; /* NULL: the session's */
};

static int describe(void *arg, size_t i, struct gb_upload_params *params, struct gb_error *err) {
    const struct described *described = arg;
    const struct core_parts *parts = described->parts;
    bool fresh = params->fresh;

    (void)err;
    *params = core_upload_params("default", parts->parts[i].name, parts->parts[i].bytes);
    params->buffer.kind = parts->kind;
    params->buffer.has_durability = described->durabilities != NULL;
    if (described->durabilities)
        params->buffer.durability = described->durabilities[i];
    params->fresh = fresh;
    return 0;
}

static int begin(struct gb_core *core, const struct described *described, struct core_wake *w,
                 struct gb_upload_group **ret, struct gb_error *err) {
    const struct core_parts *parts = described->parts;
    struct described copy = *described;
    struct gb_upload_group_params p = {.session = {"default"},
                                       .count = parts->count,
                                       .bytes = core_parts_bytes(parts),
                                       .describe = describe,
                                       .describe_arg = &copy,
                                       .waker = core_waker(w)};

    return gb_upload_group_begin(core, &p, ret, err);
}

int core_joint_begin(struct gb_core *core, const struct core_parts *parts, struct core_wake *w,
                     struct gb_upload_group **ret, struct gb_error *err) {
    return begin(core, &(struct described){.parts = parts}, w, ret, err);
}

int core_joint_send(struct gb_upload_group *group, struct core_wake *w, const void *data, size_t n,
                    struct gb_error *err) {
    const char *at = data;
    void *room;
    size_t size;
    int r;

    while (n > 0) {
        r = gb_upload_group_room(group, &room, &size, err);
        if (r < 0)
            return -1;
        if (r == 0) {
            core_wake_wait(w);
            continue;
        }
        if (size > n)
            size = n;
        memcpy(room, at, size);
        if (gb_upload_group_fill(group, size, err) < 0)
            return -1;
        at += size;
        n -= size;
    }
    return 0;
}

int core_joint_finish(struct gb_upload_group *group, struct core_wake *w, struct gb_error *err) {
    struct gb_transfer_times times;
    int r = gb_upload_group_end(group, err);

    while (r == 0) {
        r = gb_upload_group_result(group, &times, err);
        if (r == 0)
            core_wake_wait(w);
    }
    return r > 0 ? 0 : -1;
}

int core_joint_durable(struct gb_core *core, const struct core_parts *parts, const enum gb_durability *durabilities,
                       const void *data, struct gb_error *err) {
    struct gb_upload_group *group = NULL;
    struct core_wake w;
    int r;

    core_wake_init(&w);
    r = begin(core, &(struct described){parts, durabilities}, &w, &group, err);
    if (r == 0)
        r = core_joint_send(group, &w, data, core_parts_bytes(parts), err);
    if (r == 0)
        r = core_joint_finish(group, &w, err);
    gb_upload_group_free(group);
    core_wake_done(&w);
    return r;
}

int core_joint(struct gb_core *core, const struct core_parts *parts, const void *data, struct gb_error *err) {
    return core_joint_durable(core, parts, NULL, data, err);
}

/* --- down --------------------------------------------------------------------------------------------------------- */

static int read_all(struct gb_download_group *group, struct core_wake *w, void *out, uint64_t n, struct gb_error *err) {
    char *at = out;
    const void *block;
    size_t size;
    int r;

    while (n > 0) {
        r = gb_download_group_next(group, &block, &size, err);
        if (r < 0)
            return -1;
        if (r == 0) {
            core_wake_wait(w);
            continue;
        }
        if (size > 40000)
            size = 40000; /* a socket takes an arbitrary number of bytes */
        memcpy(at, block, size);
        gb_download_group_sent(group, size);
        gb_download_group_pause(group);
        at += size;
        n -= size;
    }
    return 0;
}

static int read_backwards(struct gb_download_group *group, const struct core_parts *parts, struct core_wake *w,
                          char *out, struct gb_error *err) {
    size_t *order = malloc((parts->count + 1) * sizeof(*order));
    uint64_t bytes = core_parts_bytes(parts);
    char *turned = malloc(bytes + 1);
    char *at = turned;
    size_t i;
    int r = -1;

    if (!order || !turned) {
        gb_error_set(err, GB_ERR_INTERNAL, "the test has no memory");
    } else {
        for (i = 0; i < parts->count; i++)
            order[i] = parts->count - 1 - i;
        r = gb_download_group_start(group, order, err);
    }
    if (r == 0)
        r = read_all(group, w, turned, bytes, err);
    for (i = parts->count; i > 0 && r == 0; i--) {
        bytes -= parts->parts[i - 1].bytes;
        memcpy(out + bytes, at, parts->parts[i - 1].bytes);
        at += parts->parts[i - 1].bytes;
    }
    free(order);
    free(turned);
    return r;
}

int core_bundle(struct gb_core *core, const struct core_parts *parts, void *out, struct gb_error *err) {
    struct gb_name *names = calloc(parts->count + 1, sizeof(*names));
    const struct gb_name session = {"default"};
    const struct gb_name stream = {"default"};
    struct gb_download_group *group = NULL;
    struct core_wake w;
    size_t i;
    int r;

    if (!names)
        return gb_error_set(err, GB_ERR_INTERNAL, "the test has no memory");
    core_wake_init(&w);
    for (i = 0; i < parts->count; i++)
        strcpy(names[i].s, parts->parts[i].name);
    r = gb_download_group_open(core, &session, names, parts->count, false, &stream, core_waker(&w), &group, err);
    free(names);
    if (r == 0)
        r = read_backwards(group, parts, &w, out, err);
    gb_download_group_free(group);
    core_wake_done(&w);
    return r;
}
