#include "core/util/look.h"

#include "base/clock.h"

/* An event that is not done after this time is left to the backend. */
#define LOOK_NS (60 * 1000)

/* More are left to the backend at once. */
#define LOOKS 64

struct look {
    struct gb_backend *backend;
    struct gb_event *event;
    gb_watch_fn *fn;
    void *arg;
    uint64_t since_ns;
};

static _Thread_local struct {
    bool begun;
    unsigned count;
    struct look looks[LOOKS];
} turn;

void gb_look_begin(void) {
    turn.begun = true;
}

int gb_look_watch(struct gb_backend *backend, struct gb_event *event, gb_watch_fn *fn, void *arg,
                  struct gb_error *err) {
    if (!turn.begun || turn.count == LOOKS)
        return gb_watch(backend, event, fn, arg, err);
    turn.looks[turn.count++] = (struct look){backend, event, fn, arg, gb_clock_ns()};
    return 0;
}

/* Returns true if that one needs no further look. */
static bool look(const struct look *l, uint64_t now_ns) {
    struct gb_error err = GB_ERROR_INIT;
    bool done = false;

    if (gb_event_query(l->backend, l->event, &done, &err) < 0) {
        l->fn(l->arg, &err);
        return true;
    }
    if (done) {
        l->fn(l->arg, NULL);
        return true;
    }
    if (now_ns - l->since_ns < LOOK_NS)
        return false;
    if (gb_watch(l->backend, l->event, l->fn, l->arg, &err) < 0)
        l->fn(l->arg, &err);
    return true;
}

/* A function that runs may add others, behind those that are looked at now. */
bool gb_look_end(void) {
    uint64_t now_ns = turn.count > 0 ? gb_clock_ns() : 0;
    unsigned n = turn.count;
    unsigned kept = 0;
    unsigned i;

    for (i = 0; i < n; i++) {
        struct look l = turn.looks[i];

        if (!look(&l, now_ns))
            turn.looks[kept++] = l;
    }
    for (; i < turn.count; i++)
        turn.looks[kept++] = turn.looks[i];
    turn.count = kept;
    turn.begun = kept > 0;
    return turn.begun;
}
