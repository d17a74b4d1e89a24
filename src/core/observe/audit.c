#include "core/observe/audit.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "core/access/tokens.h"
#include "core/observe/audit_file.h"
#include "core/observe/audit_refusals.h"
#include "core/runtime/runtime.h"

#define ROWS_MAX 1000000 /* as of the store */

struct gb_audit {
    enum gb_audit_mode mode;
    struct gb_audit_file *file; /* NULL: none */
    struct gb_audit_refusals *refusals;
    atomic_bool begun; /* daemon.started is noted */
};

int gb_audit_new(const struct gb_audit_config *config, struct gb_audit **ret, struct gb_error *err) {
    const char *file = config->mode != GB_AUDIT_OFF && config->file && config->file[0] ? config->file : NULL;
    uint64_t rows = config->rows > 0 ? config->rows : ROWS_MAX;
    struct gb_audit *a = calloc(1, sizeof(*a));

    if (!a)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    a->mode = config->mode;
    atomic_init(&a->begun, false);
    if (gb_audit_refusals_new(rows, config->age_us, &a->refusals, err) < 0 ||
        (file && gb_audit_file_new(file, config->file_bytes, &a->file, err) < 0)) {
        gb_audit_free(a);
        return -1;
    }
    *ret = a;
    return 0;
}

void gb_audit_free(struct gb_audit *a) {
    if (!a)
        return;
    gb_audit_file_free(a->file);
    gb_audit_refusals_free(a->refusals);
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

/* What has become a record. No lock is held across the store. */
static void put_all(struct gb_core *core, struct gb_audit_queue *recs) {
    struct gb_audit_rec rec;
    size_t at = 0;

    while (gb_audit_queue_next(recs, &at, &rec))
        gb_audit_note(core, &rec);
    gb_audit_queue_done(recs);
}

void gb_audit_note_refusal(struct gb_core *core, const struct gb_audit_rec *rec) {
    struct gb_audit_queue recs = {.at = NULL};

    gb_audit_refusals_put(core->audit->refusals, rec, gb_clock_ns(), &recs);
    put_all(core, &recs);
}

static void tick(struct gb_core *core, bool all) {
    struct gb_audit_queue recs = {.at = NULL};

    gb_audit_refusals_tick(core->audit->refusals, all, gb_clock_ns(), &recs);
    put_all(core, &recs);
}

void gb_audit_tick(struct gb_core *core) {
    tick(core, false);
}

void gb_audit_started(struct gb_core *core) {
    if (gb_audit_mode(core) != GB_AUDIT_OFF)
        begin(core);
}

void gb_audit_stopped(struct gb_core *core) {
    const struct gb_audit_rec stopped = {.at_us = gb_wall_us(), .event = GB_AUDIT_DAEMON_STOPPED};

    tick(core, true);
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
