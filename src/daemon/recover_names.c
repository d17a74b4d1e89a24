/* Which buffers the files are of. A file that a restore linked has the header of another buffer, the checkpoint's. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "daemon/recover.h"

/* How well the name is known. */
enum rank {
    OWN,     /* the header is the buffer's */
    LIKELY,  /* it was restored in place of the buffer that the header is of */
    GUESSED, /* it was restored as another buffer, perhaps in another session */
    RANKS
};

static enum rank rank_of(const struct gb_stray *stray) {
    if (!gb_stray_linked(stray))
        return OWN;
    return stray->header.name.buffer_id == stray->name.buffer_id ? LIKELY : GUESSED;
}

static int compare(int64_t a, int64_t b) {
    return (a > b) - (a < b);
}

/* Files of one buffer stand together, the one that knows its name best first, then the newest. The last buffers are
 * first, and files without a header last. */
static int by_number(const void *one, const void *other) {
    const struct gb_stray *a = *(const struct gb_stray *const *)one;
    const struct gb_stray *b = *(const struct gb_stray *const *)other;
    int r = compare(b->known, a->known);

    if (r == 0)
        r = compare(b->name.buffer_id, a->name.buffer_id);
    if (r == 0 && a->known)
        r = compare(rank_of(a), rank_of(b));
    return r != 0 ? r : compare(gb_disk_name_generation(&b->name), gb_disk_name_generation(&a->name));
}

struct naming {
    struct gb_recover *recover;
    struct gb_stray **list;
    size_t count;
    struct gb_map taken; /* by the keys of strays */
};

static void set_key(struct gb_stray *stray) {
    snprintf(stray->key, sizeof(stray->key), "%s/%s", stray->session.s, stray->buffer.s);
}

/* The best one of a buffer: its name is free, or another is made. What is the buffer's own is never changed. */
static int name_first(struct naming *naming, struct gb_stray *stray, struct gb_error *err) {
    stray->session = stray->header.session;
    stray->buffer = stray->header.buffer;
    set_key(stray);
    if (rank_of(stray) != OWN && (gb_map_get(&naming->taken, stray->key) != NULL ||
                                  gb_known_has(&naming->recover->known, stray->session.s, stray->buffer.s))) {
        snprintf(stray->buffer.s, sizeof(stray->buffer.s), "restored.%" PRId64, stray->name.buffer_id);
        set_key(stray);
    }
    return gb_map_put(&naming->taken, stray->key, stray) == 0 ? 0 : gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
}

static int name_rank(struct naming *naming, enum rank rank, struct gb_error *err) {
    const struct gb_stray *first = NULL;
    size_t i;

    for (i = 0; i < naming->count && naming->list[i]->known; i++) {
        struct gb_stray *stray = naming->list[i];

        if (first == NULL || first->name.buffer_id != stray->name.buffer_id) {
            first = stray;
            if (rank_of(first) == rank && name_first(naming, stray, err) < 0)
                return -1;
        } else if (rank_of(first) == rank) {
            stray->session = first->session;
            stray->buffer = first->buffer;
        }
    }
    return 0;
}

int gb_recover_name(struct gb_recover *recover, struct gb_error *err) {
    struct naming naming = {.recover = recover, .count = recover->count};
    unsigned rank;
    size_t i;
    int r = 0;

    naming.list = calloc(recover->count + 1, sizeof(struct gb_stray *));
    if (naming.list == NULL)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    for (i = 0; i < recover->count; i++)
        naming.list[i] = &recover->strays[i];
    qsort(naming.list, naming.count, sizeof(struct gb_stray *), by_number);
    for (rank = OWN; rank < RANKS && r == 0; rank++)
        r = name_rank(&naming, (enum rank)rank, err);
    gb_map_done(&naming.taken);
    free(naming.list);
    return r;
}
