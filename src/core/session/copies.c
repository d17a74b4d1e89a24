#include "core/session/copies.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

struct withheld {
    uint64_t edition;
    char name[];
};

/* Editions of one process are none of another's. */
static uint64_t next_edition(struct gb_copies *copies) {
    uint64_t now = (uint64_t)gb_wall_us();

    copies->edition = now > copies->edition ? now : copies->edition + 1;
    return copies->edition;
}

static void free_names(struct gb_copies *copies) {
    struct withheld *one;
    size_t at = 0;

    while ((one = gb_map_next(&copies->withheld, &at)))
        free(one);
    gb_map_done(&copies->withheld);
}

int gb_copies_check_name_locked(struct gb_session *s, const char *name, struct gb_error *err) {
    struct gb_copies *copies = &s->copies;

    if (!s->rec.holders || (copies->all == 0 && !gb_map_get(&copies->withheld, name)))
        return 0;
    return gb_error_set(err, GB_ERR_COPIES_REMAIN,
                        "nodes that hold copies for the session \"%s\" may have sealed bytes under the name \"%s\"; "
                        "it is free when they have dropped those, or when the fleet has struck them",
                        gb_session_told(s)->s, name);
}

static void withhold(struct gb_copies *copies, const char *name, uint64_t edition) {
    size_t n = strlen(name) + 1;
    struct withheld *one = gb_map_get(&copies->withheld, name);

    if (!one) {
        one = malloc(sizeof(*one) + n);
        if (one)
            memcpy(one->name, name, n);
        if (!one || gb_map_put(&copies->withheld, one->name, one) < 0) {
            free(one);
            copies->all = edition; /* rather all names than none */
            return;
        }
    }
    one->edition = edition;
}

static void tell(struct gb_core *core) {
    pthread_mutex_lock(&core->gone_lock);
    if (core->copied)
        core->copied(core->copied_arg);
    pthread_mutex_unlock(&core->gone_lock);
}

void gb_copies_note_locked(struct gb_session *s, const char *name, bool was_sealed, bool is_sealed) {
    if (was_sealed == is_sealed || (s->rec.replicas == 0 && !s->rec.holders))
        return;
    next_edition(&s->copies);
    if (was_sealed && s->rec.holders)
        withhold(&s->copies, name, s->copies.edition);
    tell(s->core);
}

void gb_copies_set_locked(struct gb_session *s, bool withhold_all) {
    if (s->copies.edition == 0)
        next_edition(&s->copies);
    if (!s->rec.holders) {
        free_names(&s->copies);
        s->copies.all = 0;
    } else if (withhold_all) {
        s->copies.all = next_edition(&s->copies);
    }
}

void gb_copies_done(struct gb_session *s) {
    free_names(&s->copies);
}

/* --- the public ones ---------------------------------------------------------------------------------------------- */

void gb_core_keep_copies(struct gb_core *core) {
    atomic_store(&core->keeps_copies, true);
}

void gb_core_set_copied(struct gb_core *core, void (*copied)(void *arg), bool (*shortage)(void *arg, uint64_t bytes),
                        void *arg) {
    pthread_mutex_lock(&core->gone_lock);
    core->copied = copied;
    core->shortage = shortage;
    core->copied_arg = arg;
    pthread_mutex_unlock(&core->gone_lock);
}

uint64_t gb_session_edition(struct gb_core *core, const struct gb_name *name) {
    struct gb_session *s = gb_session_find(core, name, NULL);
    uint64_t edition;

    if (!s)
        return 0;
    pthread_mutex_lock(&s->lock);
    if (s->copies.edition == 0)
        next_edition(&s->copies);
    edition = s->copies.edition;
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
    return edition;
}

void gb_session_release_names(struct gb_core *core, const struct gb_name *name, uint64_t edition) {
    struct gb_session *s = gb_session_find(core, name, NULL);
    struct withheld *one;
    size_t at = 0;

    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    if (s->copies.all <= edition)
        s->copies.all = 0;
    while ((one = gb_map_next(&s->copies.withheld, &at)))
        if (one->edition <= edition) {
            gb_map_take(&s->copies.withheld, one->name);
            free(one);
        }
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
}
