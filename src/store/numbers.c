/* Numbers of the database that this program counts on from. One that is near the end of 64 bits was not written by a
 * daemon: the fastest of them, the feed's ids, leave room for 2^42 starts. */
#include <stdio.h>

#include "store/db.h"

#define MOST (INT64_C(1) << 62)

static const struct {
    const char *table;
    const char *column;
} counted[] = {
    {"sqlite_sequence", "seq"},
    {"sessions", "id"},
    {"sessions", "version"},
    {"sessions", "created_at_us"},
    {"sessions", "updated_at_us"},
    {"buffers", "id"},
    {"buffers", "generation"},
    {"buffers", "version"},
    {"buffers", "created_at_us"},
    {"buffers", "updated_at_us"},
    {"stored", "generation"},
    {"pools", "id"},
    {"pools", "version"},
    {"pools", "created_at_us"},
    {"pools", "updated_at_us"},
    {"answers", "id"},
    {"answers", "expires_at_us"},
    {"audit", "id"},
    {"feed", "id"},
    {"feed_state", "dropped_through"},
    {"token_epoch", "value"},
    {"history_series", "id"},
    {"history_series", "first_at_us"},
    {"history_series", "last_at_us"},
    {"history_series", "minutes_until_us"},
    {"history_series", "hours_until_us"},
    {"history_series", "visited_us"},
    {"history_series", "sample_rows"},
    {"history_series", "minute_rows"},
    {"history_series", "hour_rows"},
    {"history_starts", "id"},
    {"history_starts", "at_us"},
    {"history_starts", "ended_at_us"},
};

static int check(sqlite3 *db, const char *path, const char *table, const char *column, struct gb_error *err) {
    char query[256];
    int64_t found;

    /* Two conditions, since an index serves each. */
    snprintf(query, sizeof(query), "SELECT %s FROM %s WHERE %s < 0 OR %s > %lld LIMIT 1", column, table, column, column,
             (long long)MOST);
    if (gb_db_int(db, query, &found, err) < 0)
        return -1;
    if (found == 0)
        return 0;
    return gb_error_set(
        err, GB_ERR_INTERNAL,
        "%s has the number %lld as %s in its table %s, which no daemon wrote: it was damaged or edited; it "
        "is left as it is: restore it from a copy, or set a number from 0 to %lld there",
        path, (long long)found, column, table, (long long)MOST);
}

int gb_db_check_numbers(sqlite3 *db, const char *path, struct gb_error *err) {
    size_t i;

    for (i = 0; i < sizeof(counted) / sizeof(counted[0]); i++) {
        if (check(db, path, counted[i].table, counted[i].column, err) < 0)
            return -1;
    }
    return 0;
}
