/* The time that the daemons of a database have seen pass: spans of the wall clock, in a table of the same. Jumps of the
 * clock are found here. The store and its history ask what is old. */
#include "store/seen.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "store/db.h"

/* A clock that is set by more than that between two readings has jumped; less is its being kept right. */
#define JUMP_US (30 * (int64_t)1000000)
/* How far ahead of the last end a start is reported: machines stand still for a night or for a weekend. */
#define AHEAD_US (7 * 86400 * (int64_t)1000000)

struct gb_seen {
    pthread_mutex_t lock; /* for all below; a leaf */
    struct gb_seen_spans spans;
    uint64_t looked_ns;
    bool jumped; /* not reported yet */
    struct gb_store_jump jump;
};

/* --- spans -------------------------------------------------------------------------------------------------------- */

int64_t gb_seen_spans_since(const struct gb_seen_spans *s, int64_t age_us) {
    int i;

    for (i = s->count - 1; i >= 0; i--) {
        int64_t length_us = s->spans[i].to_us - s->spans[i].from_us;

        if (age_us <= length_us || i == 0)
            return s->spans[i].to_us - age_us;
        age_us -= length_us;
    }
    return 0;
}

static int64_t gap_before(const struct gb_seen_spans *s, int i) {
    int64_t gap_us = s->spans[i].from_us - s->spans[i - 1].to_us;

    return gap_us < 0 ? -gap_us : gap_us;
}

static void make_room(struct gb_seen_spans *s) {
    int least = 1;
    int i;

    for (i = 2; i < s->count; i++) {
        if (gap_before(s, i) < gap_before(s, least))
            least = i;
    }
    s->spans[least].from_us -= s->spans[least - 1].to_us - s->spans[least - 1].from_us;
    memmove(&s->spans[least - 1], &s->spans[least], (size_t)(s->count - least) * sizeof(s->spans[0]));
    s->count--;
    s->changed = least - 1 < s->changed ? least - 1 : s->changed;
}

void gb_seen_spans_begin(struct gb_seen_spans *s, int64_t now_us) {
    if (s->count == GB_SEEN_MAX)
        make_room(s);
    if (s->changed > s->count)
        s->changed = s->count;
    s->spans[s->count].from_us = s->spans[s->count].to_us = now_us;
    s->count++;
}

/* --- the clock ---------------------------------------------------------------------------------------------------- */

static void tell_locked(struct gb_seen *seen, int64_t from_us, int64_t to_us, bool running) {
    seen->jumped = true;
    seen->jump = (struct gb_store_jump){.from_us = from_us, .to_us = to_us, .running = running};
}

static void look_locked(struct gb_seen *seen) {
    struct gb_seen_spans *s = &seen->spans;
    int last = s->count - 1;
    uint64_t now_ns = gb_clock_ns();
    int64_t now_us = gb_wall_us();
    int64_t expected_us = s->spans[last].to_us + (int64_t)((now_ns - seen->looked_ns) / 1000);

    seen->looked_ns = now_ns;
    s->changed = last < s->changed ? last : s->changed;
    if (now_us < expected_us - JUMP_US || now_us > expected_us + JUMP_US) {
        s->spans[last].to_us = expected_us;
        gb_seen_spans_begin(s, now_us);
        tell_locked(seen, expected_us, now_us, true);
    } else if (now_us > s->spans[last].to_us) {
        s->spans[last].to_us = now_us;
    }
}

int64_t gb_seen_since(struct gb_seen *seen, int64_t age_us) {
    int64_t since_us;

    pthread_mutex_lock(&seen->lock);
    look_locked(seen);
    since_us = gb_seen_spans_since(&seen->spans, age_us);
    pthread_mutex_unlock(&seen->lock);
    return since_us;
}

bool gb_seen_look(struct gb_seen *seen, struct gb_store_jump *ret) {
    bool jumped;

    pthread_mutex_lock(&seen->lock);
    look_locked(seen);
    jumped = seen->jumped;
    *ret = seen->jump;
    seen->jumped = false;
    pthread_mutex_unlock(&seen->lock);
    return jumped;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static int span_row(void *arg, sqlite3_stmt *row, struct gb_error *err) {
    struct gb_seen_spans *s = arg;
    int64_t from_us = sqlite3_column_int64(row, 0);
    int64_t to_us = sqlite3_column_int64(row, 1);

    (void)err;
    gb_seen_spans_begin(s, from_us);
    s->spans[s->count - 1].to_us = to_us > from_us ? to_us : from_us;
    return 0;
}

static void begin(struct gb_seen *seen) {
    struct gb_seen_spans *s = &seen->spans;
    int64_t now_us = gb_wall_us();
    int64_t end_us = s->count > 0 ? s->spans[s->count - 1].to_us : now_us;

    if (now_us < end_us || now_us > end_us + AHEAD_US)
        tell_locked(seen, end_us, now_us, false);
    gb_seen_spans_begin(s, now_us);
    seen->looked_ns = gb_clock_ns();
}

int gb_seen_new(sqlite3 *db, struct gb_seen **ret, struct gb_error *err) {
    struct gb_seen *seen = calloc(1, sizeof(*seen));

    if (!seen)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    gb_mutex_init(&seen->lock);
    if (gb_db_each_row(db, "SELECT from_us, to_us FROM seen ORDER BY id", span_row, &seen->spans, err) < 0) {
        gb_seen_free(seen);
        return -1;
    }
    begin(seen);
    *ret = seen;
    return 0;
}

void gb_seen_free(struct gb_seen *seen) {
    if (!seen)
        return;
    pthread_mutex_destroy(&seen->lock);
    free(seen);
}

static int put_span(sqlite3 *db, const struct gb_seen_spans *s, int i, struct gb_error *err) {
    char sql[160];

    snprintf(sql, sizeof(sql), "INSERT OR REPLACE INTO seen(id, from_us, to_us) VALUES(%d, %lld, %lld)", i,
             (long long)s->spans[i].from_us, (long long)s->spans[i].to_us);
    return gb_db_exec(db, sql, err);
}

int gb_seen_save(struct gb_seen *seen, sqlite3 *db, struct gb_error *err) {
    struct gb_seen_spans s;
    char sql[64];
    int i;

    pthread_mutex_lock(&seen->lock);
    look_locked(seen);
    s = seen->spans;
    seen->spans.changed = s.count;
    pthread_mutex_unlock(&seen->lock);
    for (i = s.changed; i < s.count; i++) {
        if (put_span(db, &s, i, err) < 0)
            break;
    }
    snprintf(sql, sizeof(sql), "DELETE FROM seen WHERE id >= %d", s.count);
    if (i == s.count && gb_db_exec(db, sql, err) == 0)
        return 0;
    pthread_mutex_lock(&seen->lock); /* another time */
    seen->spans.changed = 0;
    pthread_mutex_unlock(&seen->lock);
    return -1;
}
