/* A lane: who is in it is alone in asking a device for what may take a while. Its own thread runs tasks in the order of
 * posting; another thread may step in while the lane is empty, for what takes next to nothing. A task is
 * part of the object it serves, so posting needs no memory and cannot fail; the limits on sessions, buffers and
 * connections bound the queue. */
#ifndef GB_CORE_UTIL_LANE_H
#define GB_CORE_UTIL_LANE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/thread.h"

struct gb_task {
    struct gb_task *next;
    void (*run)(struct gb_task *task);
};

struct gb_lane {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    bool started;
    bool stopping;
    bool taken;          /* by its thread or by one that stepped in */
    bool poked;          /* `again` is due */
    bool tick_scheduled; /* `again` is due with the next tick */
    bool timed;          /* its thread waits no longer than a tick */
    struct gb_task *first;
    struct gb_task *last;
    /* Called on the lane after each task and, while it returned true, each tick: something is to be tried again. */
    bool (*retry)(void *arg);
    void (*before)(void *arg); /* on the lane before each task; may be NULL */
    void *hook_arg;            /* of both */
};

#define GB_LANE_TICK_MS 10

/* name: at most 15 characters. Returns 0 or -1. */
int gb_lane_init(struct gb_lane *lane, const char *name, bool (*retry)(void *arg), void *arg, struct gb_error *err);

/* An `again` for a lane that has nothing to try again. */
bool gb_lane_no_more(void *arg);

/* [any thread, never blocks] `again` is called within two ticks. Wakes nobody while the lane ticks anyway. */
void gb_lane_schedule_tick(struct gb_lane *lane);

/* Runs what is queued, joins the thread. A zeroed or half-built lane is accepted. */
void gb_lane_done(struct gb_lane *lane);

/* [any thread, never blocks] The task may be freed or posted again from its run. */
void gb_lane_post(struct gb_lane *lane, struct gb_task *task);

/* [any thread, never blocks] Steps in, as if a task of the lane: true, and gb_lane_leave must follow soon; false: the lane
 * is not free, post instead. poke: something may now be tried again. */
bool gb_lane_enter(struct gb_lane *lane);
void gb_lane_leave(struct gb_lane *lane, bool poke);

#endif
