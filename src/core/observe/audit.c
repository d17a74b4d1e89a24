#include "core/observe/audit.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "core/access/tokens.h"
#include "core/observe/audit_file.h"
#include "core/runtime/runtime.h"

struct gb_audit {
    enum gb_audit_mode mode;
    struct gb_audit_file *file; /* NULL: none */
    atomic_bool begun;          /* daemon.started is noted */
};

int gb_audit_new(enum gb_audit_mode mode, const char *file, struct gb_audit **ret, struct gb_error *err) {
    struct gb_audit *a = calloc(1, sizeof(*a));

    if (!a)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    a->mode = mode;
    atomic_init(&a->begun, false);
    if (file && file[0] && mode != GB_AUDIT_OFF && gb_audit_file_new(file, &a->file, err) < 0) {
        free(a);
        return -1;
    }
    *ret = a;
    return 0;
}

void gb_audit_free(struct gb_audit *a) {
    if (!a)
        return;
    gb_audit_file_free(a->file);
    free(a);
}

enum gb_audit_mode gb_audit_mode(struct gb_core *core) {
    enum gb_audit_mode mode = core->audit->mode;

    if (mode != GB_AUDIT_AUTO)
        return mode;
    return gb_tokens_required(core) ? GB_AUDIT_CHANGES : GB_AUDIT_OFF;
}

bool gb_audit_never(const struct gb_core *core) {
    return core->audit->mode == GB_AUDIT_OFF;
}

static void put(struct gb_core *core, const struct gb_audit_rec *rec) {
    gb_store_audit(core->store, rec);
    if (core->audit->file)
        gb_audit_file_put(core->audit->file, rec);
}

static void begin(struct gb_core *core) {
    const struct gb_audit_rec started = {.at_us = core->started_at_us, .event = GB_AUDIT_DAEMON_STARTED};

    if (!atomic_exchange(&core->audit->begun, true))
        put(core, &started);
}

void gb_audit_note(struct gb_core *core, const struct gb_audit_rec *rec) {
    if (!atomic_load_explicit(&core->audit->begun, memory_order_relaxed))
        begin(core);
    put(core, rec);
}

void gb_audit_started(struct gb_core *core) {
    if (gb_audit_mode(core) != GB_AUDIT_OFF)
        begin(core);
}

void gb_audit_stopped(struct gb_core *core) {
    const struct gb_audit_rec stopped = {.at_us = gb_wall_us(), .event = GB_AUDIT_DAEMON_STOPPED};

    if (atomic_load(&core->audit->begun))
        put(core, &stopped);
}

int gb_audit_read(struct gb_core *core, const struct gb_audit_query *query, gb_audit_visit_fn *visit, void *arg,
                  int64_t *ret_next, struct gb_error *err) {
    return gb_store_audit_read(core->store, query, visit, arg, ret_next, err);
}

void gb_audit_reopen(struct gb_core *core) {
    if (core->audit->file)
        gb_audit_file_reopen(core->audit->file);
}

void gb_audit_numbers(struct gb_core *core, struct gb_audit_numbers *ret) {
    *ret = (struct gb_audit_numbers){.file_failures = 0};
    gb_store_audit_stat(core->store, &ret->table);
    if (core->audit->file)
        ret->file_failures = gb_audit_file_failures(core->audit->file, &ret->file_error);
}
