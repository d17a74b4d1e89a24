/* The history in the database: samples of the daemon, devices, pools and sessions, rolled up to minutes and hours, and
 * queries of them. Comes with store.h.
 *
 * A sample is a row of history_samples. A minute that has ended becomes a row of history_minutes, an hour one of
 * history_hours; the present ones are computed from the finer rows at each query, so that a reply is never behind. What
 * is too old goes, a little at a time. Each of sessions and pools may have limits.rows[level] / (how many there are)
 * rows, the daemon and each device limits.rows[level]. Where there are more than limits.series sessions and pools, the
 * past of those that ended first goes. */
#ifndef GB_STORE_HISTORY_QUERY_H
#define GB_STORE_HISTORY_QUERY_H

#include "base/error.h"
#include "model/history.h"

struct gb_store;
struct gb_counters;
typedef void gb_store_done_fn(void *arg, const struct gb_error *error);

/* A transaction holds at most that many samples, or rolls up as many series: no commit waits for long. */
#define GB_HISTORY_CHUNK 32

/* As the changes of store.h. count is at most GB_HISTORY_CHUNK; counters (may be NULL) are the lifetime counters that a
 * sample of the daemon was made from: in one transaction with it, so that an increase is counted once and a lost one in
 * neither. */
void gb_store_put_history(struct gb_store *store, const struct gb_history_sample *samples, size_t count,
                          const struct gb_counters *counters, gb_store_done_fn *done, void *arg);

/* Rolls up what has ended at now_us, and drops what is too old, of a few series. *ret_more, which must live until done:
 * there is more to do. */
void gb_store_roll(struct gb_store *store, int64_t now_us, bool *ret_more, gb_store_done_fn *done, void *arg);

/* --- queries: on a thread and a connection of their own ----------------------------------------------------------- */

#define GB_HISTORY_READS_MAX 64       /* that wait; one more is SATURATED */
#define GB_HISTORY_READ_NS 2000000000 /* then it is given up */
#define GB_HISTORY_STARTS_MAX 1000    /* of the daemon, that are kept */

struct gb_history_answer {
    struct gb_history_plan plan;
    struct gb_history_point *points; /* those that have samples, by time */
    size_t count;
    int64_t *restarts; /* starts of the daemon in that time, but for its very first */
    size_t restart_count;
};
void gb_history_answer_done(struct gb_history_answer *answer);

/* Answers at once [any thread, never blocks]; done(arg, answer, error) runs once, on the reader's thread, or inside the
 * call with SATURATED. What the answer holds may be taken: it is freed after done. Changes whose done has run are
 * seen. */
typedef void gb_history_done_fn(void *arg, struct gb_history_answer *answer, const struct gb_error *error);
void gb_store_history(struct gb_store *store, const struct gb_history_key *key, const struct gb_history_plan *plan,
                      gb_history_done_fn *done, void *arg);

#endif
