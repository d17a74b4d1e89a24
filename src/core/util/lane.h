/* Executors: lanes, polling of events, pools of events, and queues of what is tried again. Every device has its own;
 * the core's other parts post tasks and watch events with them. */
#ifndef GB_CORE_UTIL_LANE_H
#define GB_CORE_UTIL_LANE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/error.h"
#include "base/thread.h"

/* A lane: a serial executor for one device. Calls of the device that may take a while come only from the thread that is
 * in the lane. The lane's own thread runs tasks in the order of posting. Another thread may enter the lane while it is
 * empty, for work that takes next to no time.
 *
 * A task is part of the object that it serves, so posting needs no memory and cannot fail. The limits on sessions,
 * buffers and connections bound the queue. */

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
    bool taken;          /* a thread is in the lane */
    bool poked;          /* retry is due */
    bool tick_scheduled; /* retry is due with the next tick */
    bool timed;          /* its thread waits no longer than a tick */
    struct gb_task *first;
    struct gb_task *last;
    /* Called on the lane after each task, and at each tick while it returns true, which means that the owner has
     * something to try again. */
    bool (*retry)(void *arg);
    void (*before)(void *arg); /* on the lane before each task; may be NULL */
    void *hook_arg;            /* of both */
};

#define GB_LANE_TICK_MS 10

/* name: at most 15 characters. Returns 0 or -1. */
int gb_lane_init(struct gb_lane *lane, const char *name, bool (*retry)(void *arg), void *arg, struct gb_error *err);

/* The retry of a lane that never has anything to try again. */
bool gb_lane_no_more(void *arg);

/* Makes the lane call retry within two ticks. While the lane ticks anyway, no thread is woken. [any thread, never
 * blocks] */
void gb_lane_schedule_tick(struct gb_lane *lane);

/* Runs the queued tasks and joins the thread. A zeroed or half-built lane is accepted. */
void gb_lane_done(struct gb_lane *lane);

/* Queues the task, which its run may free or post again. [any thread, never blocks] */
void gb_lane_post(struct gb_lane *lane, struct gb_task *task);

/* Enters the lane, as if the caller were a task of it. True: gb_lane_leave must follow soon. False: the lane is not
 * free; post a task instead. poke: something may now be tried again. [any thread, never blocks] */
bool gb_lane_enter(struct gb_lane *lane);
void gb_lane_leave(struct gb_lane *lane, bool poke);

/* A thread that works in turns (gb_core_begin_turn) polls events itself for a short time. That spares it and the
 * backend's thread a wake each; a copy of a mebibyte takes less time than a wake. */

/* Begins a turn of the calling thread. */
void gb_poll_begin(void);

/* Polls the events, and calls the functions of those that are done. Returns true while events are left to poll: the
 * turn continues, and the thread must not sleep. Otherwise the turn has ended. */
bool gb_poll_end(void);

/* As gb_watch. In a turn, fn may run on the calling thread, in gb_poll_end. */
int gb_poll_watch(struct gb_backend *backend, struct gb_event *event, gb_watch_fn *fn, void *arg, struct gb_error *err);

/* Events of one device, kept for reuse, because creating one is not free. */

struct gb_ev {
    struct gb_ev *next;
    struct gb_event *event;
};

struct gb_event_pool {
    struct gb_backend *backend;
    int device;
    pthread_mutex_t lock;
    bool ready;
    struct gb_ev *first;
};

void gb_event_pool_init(struct gb_event_pool *events, struct gb_backend *backend, int device);

/* All events must have been given back. A zeroed pool is accepted. */
void gb_event_pool_done(struct gb_event_pool *events);

/* Returns an event that the caller gives back, or NULL with err. */
struct gb_ev *gb_event_pool_take(struct gb_event_pool *events, struct gb_error *err);

/* Gives an event back; no watch on it may be pending. NULL is accepted. [any thread, never blocks] */
void gb_event_pool_give(struct gb_event_pool *events, struct gb_ev *ev);

/* Objects that wait to be tried again, in the order of their arrival. Only one lane uses a queue. */

struct gb_retry_waiter {
    struct gb_retry_waiter *next;
};

struct gb_retry_queue {
    struct gb_retry_waiter *first;
    uint64_t next_ns; /* the next try, unless something is freed before */
    bool freed;       /* since the last try */
};

/* Appends the waiter. It is tried after a while, or when something is freed. */
void gb_retry_queue_put(struct gb_retry_queue *queue, struct gb_retry_waiter *waiter);

/* Returns true if it is time to try again. False for an empty queue. */
bool gb_retry_queue_due(const struct gb_retry_queue *queue);

/* Tries all waiters in order. try(waiter, arg) returns true if the waiter waits no longer; it may have been freed then.
 * Returns true while any waiter is left. */
bool gb_retry_queue_run(struct gb_retry_queue *queue, bool (*try)(struct gb_retry_waiter *waiter, void *arg),
                        void *arg);

#endif
