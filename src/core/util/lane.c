#include "core/util/lane.h"

#include <time.h>

#include "base/clock.h"
#include "base/thread.h"

/* Waits for work and takes the lane. The next task; NULL when only `again` is due, or at the end with *ret_end set. */
static struct gb_task *next_task(struct gb_lane *lane, bool ticking, bool *ret_end) {
    struct timespec until = gb_after_ms(GB_LANE_TICK_MS);
    struct gb_task *task;
    int r = 0;

    pthread_mutex_lock(&lane->lock);
    while (lane->taken || (!lane->first && !lane->stopping && !lane->poked && r == 0)) {
        lane->timed = (ticking || lane->tick_scheduled) && !lane->taken;
        if (lane->timed)
            r = pthread_cond_timedwait(&lane->wake, &lane->lock, &until);
        else
            pthread_cond_wait(&lane->wake, &lane->lock);
    }
    lane->taken = true;
    lane->poked = false;
    lane->tick_scheduled = false;
    task = lane->first;
    if (task) {
        lane->first = task->next;
        if (!lane->first)
            lane->last = NULL;
    }
    *ret_end = !task && lane->stopping;
    pthread_mutex_unlock(&lane->lock);
    return task;
}

static void *lane_main(void *arg) {
    struct gb_lane *lane = arg;
    bool ticking = false;
    bool end = false;

    while (!end) {
        struct gb_task *task = next_task(lane, ticking, &end);

        if (task) {
            if (lane->before)
                lane->before(lane->hook_arg);
            task->run(task);
        }
        ticking = lane->retry(lane->hook_arg);
        gb_lane_leave(lane, false);
    }
    return NULL;
}

bool gb_lane_enter(struct gb_lane *lane) {
    bool entered;

    pthread_mutex_lock(&lane->lock);
    entered = !lane->taken && !lane->first;
    if (entered)
        lane->taken = true;
    pthread_mutex_unlock(&lane->lock);
    return entered;
}

void gb_lane_leave(struct gb_lane *lane, bool poke) {
    pthread_mutex_lock(&lane->lock);
    lane->taken = false;
    lane->poked = lane->poked || poke;
    if (lane->first || lane->poked || lane->stopping)
        pthread_cond_signal(&lane->wake);
    pthread_mutex_unlock(&lane->lock);
}

void gb_lane_schedule_tick(struct gb_lane *lane) {
    pthread_mutex_lock(&lane->lock);
    lane->tick_scheduled = true;
    if (!lane->timed)
        pthread_cond_signal(&lane->wake);
    pthread_mutex_unlock(&lane->lock);
}

bool gb_lane_no_more(void *arg) {
    (void)arg;
    return false;
}

int gb_lane_init(struct gb_lane *lane, const char *name, bool (*retry)(void *arg), void *arg, struct gb_error *err) {
    *lane = (struct gb_lane){.retry = retry, .hook_arg = arg};
    gb_mutex_init(&lane->lock);
    gb_cond_init(&lane->wake);
    if (gb_thread_start(&lane->thread, name, lane_main, lane, err) < 0) {
        pthread_cond_destroy(&lane->wake);
        pthread_mutex_destroy(&lane->lock);
        return -1;
    }
    lane->started = true;
    return 0;
}

void gb_lane_done(struct gb_lane *lane) {
    if (!lane->started)
        return;
    pthread_mutex_lock(&lane->lock);
    lane->stopping = true;
    pthread_cond_signal(&lane->wake);
    pthread_mutex_unlock(&lane->lock);
    pthread_join(lane->thread, NULL);
    pthread_cond_destroy(&lane->wake);
    pthread_mutex_destroy(&lane->lock);
    lane->started = false;
}

void gb_lane_post(struct gb_lane *lane, struct gb_task *task) {
    pthread_mutex_lock(&lane->lock);
    task->next = NULL;
    if (lane->last)
        lane->last->next = task;
    else
        lane->first = task;
    lane->last = task;
    pthread_cond_signal(&lane->wake);
    pthread_mutex_unlock(&lane->lock);
}
