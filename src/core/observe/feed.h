/* The feed of events: the newest in memory, the rest in the database. Included by core.h. */
#ifndef GB_CORE_OBSERVE_FEED_H
#define GB_CORE_OBSERVE_FEED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/thread.h"
#include "model/history.h"

struct gb_core;
struct gb_call;

/* Which events. session: those of it and those of no session; "": all. prefix: those of buffers whose names begin with
 * it and those of no buffer; "": all. */
struct gb_feed_filter {
    uint64_t types; /* 1 << enum gb_notice_type */
    struct gb_name session;
    struct gb_name prefix;
};

/* A piece of the feed. The caller gives room for `max` notices. */
struct gb_feed_piece {
    int64_t after;   /* in: events above */
    bool newest;     /* in: instead, the newest `max` that are in memory */
    size_t look_max; /* in: how many to look at, matching or not; 0: no bound */
    struct gb_feed_filter filter;
    struct gb_notice *notices;
    size_t max;
    size_t count;        /* out */
    int64_t through;     /* out: all up to here were looked at */
    int64_t gap_through; /* out: of the others above `after`, up to here, some are no longer in the log; 0: none */
    int64_t last;        /* out: newest of all, matching or not */
};

/* Sets the listener: waker is called when there is more, and must not block nor call the core. Without fn: none.
 * [any thread, never blocks] */
void gb_feed_watch(struct gb_core *core, struct gb_waker waker);

/* The newest event that can be read; the newest that was given an id. [now] */
int64_t gb_feed_last(struct gb_core *core);
int64_t gb_feed_given(struct gb_core *core);

/* Reads from memory. False: the piece reaches further back. [now] */
bool gb_feed_recall(struct gb_core *core, struct gb_feed_piece *piece);
/* Reads from memory or from the database. [blocks] */
int gb_feed_read(struct gb_core *core, struct gb_feed_piece *piece, struct gb_error *err);
/* The same on a compute lane; the core uses piece until the call has ended. */
void gb_feed_fetch(struct gb_core *core, struct gb_feed_piece *piece, struct gb_call *call);

/* Posts device.health: a change of a device's health, in a few words. [any thread, never blocks] */
void gb_feed_health(struct gb_core *core, int device, const char *detail);
/* Posts an event of the daemon itself. [any thread, never blocks] */
void gb_feed_say(struct gb_core *core, enum gb_notice_type type, const char *detail);

/* Posts daemon.stopping and waits until it can be read, for timeout_ms at most. */
void gb_feed_stopping(struct gb_core *core, unsigned timeout_ms);

/* --- the core's --------------------------------------------------------------------------------------------------- */

struct gb_feed;

/* NULL when memory is exhausted. gb_feed_free accepts NULL. */
struct gb_feed *gb_feed_new(void);
void gb_feed_free(struct gb_feed *feed);

/* Loads the newest from the database and posts daemon.started, after a feed.gap where the run before broke off; from
 * then on the feed hears of what is committed. */
int gb_feed_start(struct gb_core *core, struct gb_error *err);
void gb_feed_stop(struct gb_core *core);

#endif
