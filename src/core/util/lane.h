/* A lane: a serial executor for one device. The thread that is in the lane is the only one that asks the device for
 * what may take a while. The lane's own thread runs tasks in the order of posting. Another thread may enter the lane
 * while it is empty, for work that takes next to no time.
 *
 * A task is part of the object that it serves, so posting needs no memory and cannot fail. The limits on sessions,
 * buffers and connections bound the queue. */
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
    bool taken;          /* by its own thread or by one that entered */
    bool poked;          /* retry is due */
    bool tick_scheduled; /* retry is due with the next tick */
    bool timed;          /* its thread waits no longer than a tick */
    struct gb_task *first;
    struct gb_task *last;
    /* Called on the lane after each task and, while it returns true, at each tick: the owner has something to try
     * again. */
    bool (*retry)(void *arg);
    void (*before)(void *arg); /* on the lane before each task; may be NULL */
    void *hook_arg;            /* of both */
};

#define GB_LANE_TICK_MS 10

/* name: at most 15 characters. Returns 0 or -1. */
int gb_lane_init(struct gb_lane *lane, const char *name, bool (*retry)(void *arg), void *arg, struct gb_error *err);

/* A retry for a lane that has nothing to try again. */
bool gb_lane_no_more(void *arg);

/* Has retry called within two ticks. While the lane ticks anyway, no thread is woken. [any thread, never blocks] */
void gb_lane_schedule_tick(struct gb_lane *lane);

/* Runs the queued tasks and joins the thread. A zeroed or half-built lane is accepted. */
void gb_lane_done(struct gb_lane *lane);

/* Queues the task, which its run may free or post again. [any thread, never blocks] */
void gb_lane_post(struct gb_lane *lane, struct gb_task *task);

/* Enters the lane, as if the caller were a task of it. True: gb_lane_leave must follow soon. False: the lane is not
 * free; post a task instead. poke: something may now be tried again. [any thread, never blocks] */
bool gb_lane_enter(struct gb_lane *lane);
void gb_lane_leave(struct gb_lane *lane, bool poke);

#endif
