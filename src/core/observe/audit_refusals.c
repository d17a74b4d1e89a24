#include "core/observe/audit_refusals.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/thread.h"

/* A repetition is told a second later; while there are more of them, in steps that double up to this. */
#define STEP_NS GB_NS_PER_S
#define STEP_MAX_NS (64 * GB_NS_PER_S)
/* Between two records of those that have none of their own, at least. */
#define OTHERS_NS (60 * GB_NS_PER_S)
/* Of rows without a bound of their age. */
#define YEAR_US (365 * 86400 * 1000000LL)

/* A client, a route and a code. */
struct entry {
    bool used;
    uint32_t hash;    /* of what tells it apart, or of a part of that */
    uint64_t last_ns; /* of the last refusal */
    uint64_t step_ns;
    uint64_t due_ns;  /* when repetitions are told */
    uint64_t repeats; /* that no record tells of yet; rec is the last of them */
    struct gb_audit_rec rec;
    char text[GB_AUDIT_TEXTS - GB_AUDIT_STATICS][GB_AUDIT_TEXT_MAX + 1];
};

struct gb_audit_refusals {
    double per_ns; /* records that the share permits */
    double burst;
    uint64_t others_ns;

    pthread_mutex_t lock; /* for all below; a leaf */
    double left;          /* of the share, at filled_ns */
    uint64_t filled_ns;
    uint64_t others;        /* refusals for which nothing of it was left */
    uint64_t others_due_ns; /* when those are told */
    struct entry entries[GB_AUDIT_REFUSALS_MAX];
};

int gb_audit_refusals_new(uint64_t rows, int64_t age_us, struct gb_audit_refusals **ret, struct gb_error *err) {
    double age_ns = (double)(age_us > 0 ? age_us : YEAR_US) * 1000;
    double tenth = (double)rows / 10;
    struct gb_audit_refusals *r = calloc(1, sizeof(*r));

    if (!r)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    /* Half of the rows: a tenth at once, three in the time, and one for the others. */
    r->burst = tenth < GB_AUDIT_REFUSALS_BURST ? tenth : GB_AUDIT_REFUSALS_BURST;
    if (r->burst < 1)
        r->burst = 1;
    r->per_ns = 3 * tenth / age_ns;
    r->others_ns = age_ns > (double)OTHERS_NS * tenth ? (uint64_t)(age_ns / tenth) : OTHERS_NS;
    r->left = r->burst;
    gb_mutex_init(&r->lock);
    *ret = r;
    return 0;
}

void gb_audit_refusals_free(struct gb_audit_refusals *r) {
    if (!r)
        return;
    pthread_mutex_destroy(&r->lock);
    free(r);
}

/* --- the share ---------------------------------------------------------------------------------------------------- */

static bool take_share(struct gb_audit_refusals *r, uint64_t now_ns) {
    if (now_ns > r->filled_ns) {
        r->left += (double)(now_ns - r->filled_ns) * r->per_ns;
        r->filled_ns = now_ns;
    }
    if (r->left > r->burst)
        r->left = r->burst;
    if (r->left < 1)
        return false;
    r->left -= 1;
    return true;
}

/* A record that stands for n refusals; without a share it is counted among the others. */
static void tell(struct gb_audit_refusals *r, const struct gb_audit_rec *rec, uint64_t n, uint64_t now_ns,
                 struct gb_audit_queue *out) {
    struct gb_audit_rec told = *rec;

    told.count = n > 1 ? n : 0;
    if (take_share(r, now_ns) && gb_audit_queue_put(out, &told, SIZE_MAX))
        return;
    if (r->others == 0)
        r->others_due_ns = now_ns + r->others_ns;
    r->others += n;
}

static void tell_others(struct gb_audit_refusals *r, struct gb_audit_queue *out) {
    const struct gb_audit_rec rec = {.at_us = gb_wall_us(), .event = GB_AUDIT_REFUSALS, .count = r->others};

    if (gb_audit_queue_put(out, &rec, SIZE_MAX))
        r->others = 0;
}

/* --- entries ------------------------------------------------------------------------------------------------------ */

static bool same_text(const char *a, const char *b) {
    return a == b || (a && b && strncmp(a, b, GB_AUDIT_TEXT_MAX) == 0);
}

static bool same(const struct gb_audit_rec *a, const struct gb_audit_rec *b) {
    static const enum gb_audit_text texts[] = {GB_AUDIT_ADDRESS, GB_AUDIT_ROUTE, GB_AUDIT_METHOD,
                                               GB_AUDIT_ERROR,   GB_AUDIT_TOKEN, GB_AUDIT_CERTIFICATE};
    size_t i;

    if (a->token_id != b->token_id || a->status != b->status)
        return false;

    for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (!same_text(a->text[texts[i]], b->text[texts[i]]))
            return false;
    }
    return true;
}

/* With --audit all, each read is looked for among all entries. */
static uint32_t hash_of(const struct gb_audit_rec *rec) {
    const char *address = rec->text[GB_AUDIT_ADDRESS];
    const char *route = rec->text[GB_AUDIT_ROUTE];

    return (gb_map_hash(address ? address : "") * 31 + gb_map_hash(route ? route : "")) * 31 + (uint32_t)rec->status;
}

/* The entry of this client, route and code, else one that is free, else the one that was refused longest ago. */
static struct entry *find(struct gb_audit_refusals *r, const struct gb_audit_rec *rec, uint32_t hash, bool *ret_same) {
    struct entry *best = &r->entries[0];
    struct entry *e;

    *ret_same = true;
    for (e = r->entries; e < r->entries + GB_AUDIT_REFUSALS_MAX; e++) {
        if (e->used && e->hash == hash && same(&e->rec, rec))
            return e;
        if (best->used && (!e->used || e->last_ns < best->last_ns))
            best = e;
    }
    *ret_same = false;
    return best;
}

static void keep(struct entry *e, const struct gb_audit_rec *rec, uint64_t now_ns) {
    int i;

    e->rec = *rec;
    e->last_ns = now_ns;
    for (i = 0; i < GB_AUDIT_TEXTS - GB_AUDIT_STATICS; i++) {
        const char *text = rec->text[GB_AUDIT_STATICS + i];
        size_t n = text ? strnlen(text, GB_AUDIT_TEXT_MAX) : 0;

        memcpy(e->text[i], text ? text : "", n);
        e->text[i][n] = '\0';
        e->rec.text[GB_AUDIT_STATICS + i] = text ? e->text[i] : NULL;
    }
}

static void tell_repeats(struct gb_audit_refusals *r, struct entry *e, uint64_t now_ns, struct gb_audit_queue *out) {
    if (e->repeats == 0)
        return;
    tell(r, &e->rec, e->repeats, now_ns, out);
    e->repeats = 0;
    e->step_ns = e->step_ns * 2 < STEP_MAX_NS ? e->step_ns * 2 : STEP_MAX_NS;
}

void gb_audit_refusals_put(struct gb_audit_refusals *r, const struct gb_audit_rec *rec, uint64_t now_ns,
                           struct gb_audit_queue *out) {
    uint32_t hash = hash_of(rec);
    struct entry *e;
    bool known;

    pthread_mutex_lock(&r->lock);
    e = find(r, rec, hash, &known);
    if (known) {
        if (e->repeats++ == 0)
            e->due_ns = now_ns + e->step_ns;
    } else {
        tell_repeats(r, e, now_ns, out);
        e->used = true;
        e->hash = hash;
        e->step_ns = STEP_NS;
        tell(r, rec, 1, now_ns, out);
    }
    keep(e, rec, now_ns);
    pthread_mutex_unlock(&r->lock);
}

void gb_audit_refusals_tick(struct gb_audit_refusals *r, bool all, uint64_t now_ns, struct gb_audit_queue *out) {
    struct entry *e;

    pthread_mutex_lock(&r->lock);
    for (e = r->entries; e < r->entries + GB_AUDIT_REFUSALS_MAX; e++) {
        if (!e->used)
            continue;
        if (all || now_ns >= e->due_ns)
            tell_repeats(r, e, now_ns, out);
        if (e->repeats == 0 && now_ns >= e->last_ns + STEP_MAX_NS)
            e->used = false;
    }
    if (r->others > 0 && (all || now_ns >= r->others_due_ns))
        tell_others(r, out);
    pthread_mutex_unlock(&r->lock);
}
