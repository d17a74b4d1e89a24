/* The time that the daemon has seen pass, as spans of the wall clock. A span ends with the process, or when the wall
 * clock is set to another time. Ages are counted in this time: a clock that is wrong for one start, or one that jumps,
 * makes nothing old. Internal to the store. */
#ifndef GB_STORE_SEEN_H
#define GB_STORE_SEEN_H

#include <sqlite3.h>

#include "store/store.h"

struct gb_seen;

/* Reads the spans of earlier processes and begins this one's. */
int gb_seen_new(sqlite3 *db, struct gb_seen **ret, struct gb_error *err);
void gb_seen_free(struct gb_seen *seen); /* NULL is accepted */

/* [any thread] The moment since which age_us was seen. Before the first span all time counts. */
int64_t gb_seen_since(struct gb_seen *seen, int64_t age_us);

/* [any thread] As gb_store_clock. */
bool gb_seen_look(struct gb_seen *seen, struct gb_store_jump *ret);

/* Writes what has changed; within a transaction of the database, or by itself. Returns 0, or -1 with STORE_FAILED. */
int gb_seen_save(struct gb_seen *seen, sqlite3 *db, struct gb_error *err);

/* --- pure --------------------------------------------------------------------------------------------------------- */

/* Fewer than the starts of a month of a daemon that is started every day, or that fails at its start for an hour. */
#define GB_SEEN_MAX 64

struct gb_seen_spans {
    struct {
        int64_t from_us;
        int64_t to_us;
    } spans[GB_SEEN_MAX]; /* the newest last; they may overlap */
    int count;
    int changed; /* from this one on they are not written yet */
};

int64_t gb_seen_spans_since(const struct gb_seen_spans *spans, int64_t age_us);
/* Where there is no room the two are joined whose gap is the shortest: the time in it counts as not seen. */
void gb_seen_spans_begin(struct gb_seen_spans *spans, int64_t now_us);

#endif
