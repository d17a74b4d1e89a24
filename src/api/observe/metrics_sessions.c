#include "api/observe/metrics_sessions.h"

#include <stdlib.h>

#include "api/observe/metrics_snapshot.h"

int gb_metrics_sessions_add(struct gb_metrics_sessions *list, const struct gb_session_view *view) {
    size_t room = list->room ? list->room * 2 : 64;
    struct gb_metrics_candidate *bigger;

    if (list->most == 0)
        return 0;
    if (list->count == list->room) {
        bigger = realloc(list->items, room * sizeof(*bigger));
        if (!bigger)
            return -1;
        list->items = bigger;
        list->room = room;
    }
    list->items[list->count++] = (struct gb_metrics_candidate){.name = view->rec.name,
                                                               .id = view->rec.id,
                                                               .used_bytes = view->used_bytes,
                                                               .pinned_bytes = view->used_pinned_bytes,
                                                               .buffers = view->buffers,
                                                               .quota_bytes = view->rec.quota.bytes};
    return 0;
}

static int larger_first(const void *a, const void *b) {
    const struct gb_metrics_candidate *x = a;
    const struct gb_metrics_candidate *y = b;

    if (x->used_bytes != y->used_bytes)
        return x->used_bytes > y->used_bytes ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static struct gb_metrics_snapshot_session from(const struct gb_metrics_candidate *c) {
    return (struct gb_metrics_snapshot_session){.name = c->name,
                                                .used_bytes = c->used_bytes,
                                                .pinned_bytes = c->pinned_bytes,
                                                .buffers = c->buffers,
                                                .quota_bytes = c->quota_bytes};
}

static void add_rest(struct gb_metrics_snapshot *snapshot, const struct gb_metrics_candidate *items, size_t count) {
    struct gb_metrics_snapshot_session *rest = &snapshot->sessions[snapshot->session_count++];
    size_t i;

    *rest = (struct gb_metrics_snapshot_session){.name = {GB_SESSION_REST}, .rest = true};
    for (i = 0; i < count; i++) {
        rest->used_bytes += items[i].used_bytes;
        rest->pinned_bytes += items[i].pinned_bytes;
        rest->buffers += items[i].buffers;
    }
}

int gb_metrics_sessions_pick(struct gb_metrics_sessions *list, struct gb_core *core,
                             struct gb_metrics_snapshot *snapshot, struct gb_error *err) {
    size_t most = list->count < list->most ? list->count : (size_t)list->most;
    size_t i;

    snapshot->sessions = calloc(most + 1, sizeof(*snapshot->sessions));
    if (!snapshot->sessions)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the reply; try again later");
    if (list->count > 0)
        qsort(list->items, list->count, sizeof(*list->items), larger_first);
    for (i = 0; i < most; i++) {
        struct gb_metrics_snapshot_session *s = &snapshot->sessions[snapshot->session_count];

        *s = from(&list->items[i]);
        if (gb_session_stats(core, &list->items[i].name, &s->stats, NULL) == 0) /* else it was deleted meanwhile */
            snapshot->session_count++;
    }
    if (list->count > most)
        add_rest(snapshot, &list->items[most], list->count - most);
    return 0;
}
