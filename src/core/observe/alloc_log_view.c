#include "core/observe/alloc_log_view.h"

#include "core/session/pools.h"
#include "core/session/session.h"

static struct gb_alloc_log_pool describe(struct gb_core_pool *p) {
    struct gb_alloc_log_pool ret = {.id = p->own ? 0 : p->rec.id, .device = p->device->index, .name = p->rec.name};
    struct gb_pool_stat stat;

    gb_core_pool_stat(p, &stat);
    ret.reserved_bytes = stat.reserved_bytes;
    return ret;
}

int gb_alloc_log_pools(struct gb_core *core,
                       int (*visit)(void *arg, const struct gb_alloc_log_pool *, struct gb_error *), void *arg,
                       struct gb_error *err) {
    struct gb_alloc_log_pool pool;
    struct gb_session *s;
    int64_t id = 0;
    int r = 0;
    int i;

    for (i = 0; i < core->device_count && r == 0; i++) {
        if (gb_core_pool_absent(core->devices[i].pool))
            continue;
        pool = describe(core->devices[i].pool);
        r = visit(arg, &pool, err);
    }
    while (r == 0 && (s = gb_session_after(core, id))) {
        struct gb_core_pool *p;
        int64_t pool_id = 0;

        id = s->id;
        while (r == 0 && (p = gb_session_pool_after(s, &pool_id))) {
            if (atomic_load(&p->state) == GB_POOL_LIVE && p->device) {
                pool = describe(p);
                r = visit(arg, &pool, err);
            }
            gb_core_pool_unref(p);
        }
        gb_session_unref(s);
    }
    return r;
}
