/* Pulls that wait, run and have ended. Each that runs has a thread; a thread that has ended is joined when the next
 * pull begins. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "core/runtime/call.h"
#include "pull/internal.h"

#define NO_THREAD "the system gives no thread for the pull; try again later"
#define WAIT_MAX_MS (24 * 3600 * 1000)

/* --- lists -------------------------------------------------------------------------------------------------------- */

static void append(struct gb_pull **list, struct gb_pull *pull) {
    while (*list)
        list = &(*list)->next;
    pull->next = NULL;
    *list = pull;
}

static bool withdraw(struct gb_pull **list, struct gb_pull *pull) {
    for (; *list; list = &(*list)->next)
        if (*list == pull) {
            *list = pull->next;
            return true;
        }
    return false;
}

/* --- one pull ----------------------------------------------------------------------------------------------------- */

/* Frees what params hand over. */
static void let_go(const struct gb_pull_params *params) {
    if (params->ticket.free_arg)
        params->ticket.free_arg(params->ticket.arg);
    if (params->elsewhere.free_arg)
        params->elsewhere.free_arg(params->elsewhere.arg);
    if (params->check.free_arg)
        params->check.free_arg(params->check.arg);
}

void gb_pull_unref(struct gb_pull *pull) {
    size_t i;

    if (atomic_fetch_sub(&pull->refs, 1) != 1)
        return;
    for (i = 0; pull->permitted && i < pull->params.permitted_count; i++)
        free(pull->permitted[i]);
    free(pull->permitted);
    gb_pull_places_free(pull);
    let_go(&pull->params);
    if (pull->stop >= 0)
        close(pull->stop);
    if (pull->halt >= 0)
        close(pull->halt);
    free(pull->token);
    free(pull->if_match);
    free(pull);
}

static bool copy_text(const char *text, char **ret) {
    *ret = text ? strdup(text) : NULL;
    return !text || *ret;
}

static bool copy_permitted(struct gb_pull *pull, const struct gb_pull_params *params) {
    size_t i;

    pull->permitted = calloc(params->permitted_count + 1, sizeof(char *));
    if (!pull->permitted)
        return false;
    for (i = 0; i < params->permitted_count; i++)
        if (!copy_text(params->permitted[i], &pull->permitted[i]))
            return false;
    return true;
}

/* Takes what params hand over. NULL with err. */
static struct gb_pull *pull_new(struct gb_pulls *pulls, const struct gb_pull_params *params, struct gb_pull_call *call,
                                struct gb_error *err) {
    struct gb_pull *pull = calloc(1, sizeof(*pull));

    if (!pull) {
        let_go(params);
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the pull; try again later");
        return NULL;
    }
    atomic_init(&pull->refs, 1);
    pull->pulls = pulls;
    pull->call = call;
    pull->params = *params;
    strcpy(pull->first.origin, params->from.origin);
    pull->first.ticket = params->ticket;
    atomic_init(&pull->place, &pull->first);
    pull->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pull->halt = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (copy_permitted(pull, params) && copy_text(params->token, &pull->token) &&
        copy_text(params->if_match, &pull->if_match) && pull->stop >= 0 && pull->halt >= 0)
        return pull;
    gb_error_set(err, GB_ERR_SATURATED, "no memory, or no descriptor, for the pull; try again later");
    gb_pull_unref(pull);
    return NULL;
}

static void stop_locked(struct gb_pull *pull, enum gb_code why) {
    if (pull->why == GB_OK)
        pull->why = why;
    atomic_store(&pull->stopped, true);
    (void)eventfd_write(pull->stop, 1);
}

bool gb_pull_commits(struct gb_pull *pull) {
    bool stopped;

    pthread_mutex_lock(&pull->pulls->lock);
    stopped = pull->why != GB_OK;
    if (!stopped)
        pull->state = GB_PULL_COMMITS;
    pthread_mutex_unlock(&pull->pulls->lock);
    return !stopped;
}

/* --- the threads -------------------------------------------------------------------------------------------------- */

static void start_more_locked(struct gb_pulls *pulls);

static int stopped_error(enum gb_code why, struct gb_error *err) {
    if (why == GB_ERR_DRAINING)
        return gb_error_set(err, GB_ERR_DRAINING, "the daemon is stopping; the pull was given up, nothing was changed");
    return gb_cancelled(err);
}

/* Tells the result, without the lock: the call's done may begin another pull. */
static void finish(struct gb_pull *pull, int r, struct gb_error *err) {
    struct gb_pulls *pulls = pull->pulls;

    (void)gb_call_withdraw(&pull->call->written.base, NULL);
    pthread_mutex_lock(&pulls->lock);
    if (r < 0 && pull->why != GB_OK) {
        *err = GB_ERROR_INIT;
        stopped_error(pull->why, err);
    }
    if (r < 0 && err->code == GB_OK)
        gb_error_set(err, GB_ERR_INTERNAL, "the pull has ended without a reason");
    pulls->stat.done += r == 0;
    pulls->stat.failed += r < 0;
    pulls->stat.resumed += pull->numbers.resumed;
    pulls->stat.begun_again += pull->numbers.begun_again;
    pthread_mutex_unlock(&pulls->lock);
    pull->call->numbers = pull->numbers;
    gb_call_finish(&pull->call->written.base, r < 0 ? err : NULL);
}

static struct gb_pull *take_queue_locked(struct gb_pulls *pulls) {
    struct gb_pull *queue = pulls->queue;

    pulls->queue = NULL;
    pulls->stat.waiting = 0;
    return queue;
}

/* Ends pulls that were in the queue. */
static void finish_all(struct gb_pull *queue, const struct gb_error *why) {
    struct gb_error err;
    struct gb_pull *pull;

    while ((pull = queue)) {
        queue = pull->next;
        err = *why;
        finish(pull, -1, &err);
        gb_pull_unref(pull);
    }
}

static void *pull_main(void *arg) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_error lack = GB_ERROR_INIT;
    struct gb_pull *stranded = NULL; /* for which no thread can be had, and none ends that they could wait for */
    struct gb_pull *pull = arg;
    struct gb_pulls *pulls = pull->pulls;
    int r = gb_pull_run(pull, &err);

    finish(pull, r, &err);
    pthread_mutex_lock(&pulls->lock);
    pull->state = GB_PULL_ENDED;
    withdraw(&pulls->runs, pull);
    append(&pulls->ended, pull);
    pulls->stat.running--;
    start_more_locked(pulls);
    if (pulls->stat.running == 0 && !pulls->closing)
        stranded = take_queue_locked(pulls);
    pthread_cond_broadcast(&pulls->idle);
    pthread_mutex_unlock(&pulls->lock);
    gb_error_set(&lack, GB_ERR_SATURATED, NO_THREAD);
    finish_all(stranded, &lack);
    return NULL;
}

/* Where no thread can be had, the pulls wait for the end of another one; without another one they have failed. */
static void start_more_locked(struct gb_pulls *pulls) {
    struct gb_pull *pull;

    while (!pulls->closing && pulls->queue && pulls->stat.running < pulls->running_max) {
        pull = pulls->queue;
        if (gb_thread_start(&pull->thread, "gb-pull", pull_main, pull, NULL) < 0)
            return;
        pulls->queue = pull->next;
        pull->state = GB_PULL_RUNS;
        append(&pulls->runs, pull);
        pulls->stat.waiting--;
        pulls->stat.running++;
    }
}

static void join_ended(struct gb_pulls *pulls) {
    struct gb_pull *ended;
    struct gb_pull *next;

    pthread_mutex_lock(&pulls->lock);
    ended = pulls->ended;
    pulls->ended = NULL;
    pthread_mutex_unlock(&pulls->lock);
    for (; ended; ended = next) {
        next = ended->next;
        pthread_join(ended->thread, NULL);
        gb_pull_unref(ended);
    }
}

/* --- cancelling --------------------------------------------------------------------------------------------------- */

static bool hold(void *arg) {
    atomic_fetch_add(&((struct gb_pull *)arg)->refs, 1);
    return true;
}

/* A pull that runs is told to the operation's readers as running, and may be cancelled all the same. */
static bool cancel(void *arg, bool act) {
    struct gb_pull *pull = arg;
    struct gb_pulls *pulls = pull->pulls;
    struct gb_error err = GB_ERROR_INIT;
    bool waited = false;
    bool r;

    pthread_mutex_lock(&pulls->lock);
    r = pull->state == GB_PULL_WAITS || (act && pull->state == GB_PULL_RUNS);
    if (r && act) {
        stop_locked(pull, GB_ERR_CANCELLED);
        waited = withdraw(&pulls->queue, pull);
        pulls->stat.waiting -= waited;
    }
    pthread_mutex_unlock(&pulls->lock);
    if (waited) {
        finish(pull, -1, &err);
        gb_pull_unref(pull);
    }
    gb_pull_unref(pull);
    return r;
}

/* --- all pulls ---------------------------------------------------------------------------------------------------- */

static int admit_locked(struct gb_pulls *pulls, struct gb_pull *pull, struct gb_error *err) {
    if (pulls->closing || pull->why != GB_OK)
        return stopped_error(pulls->closing ? GB_ERR_DRAINING : pull->why, err);
    if (pulls->stat.waiting >= GB_PULLS_WAITING)
        return gb_error_set(err, GB_ERR_SATURATED, "%d pulls wait already (--pulls %u run at a time); try again later",
                            GB_PULLS_WAITING, pulls->running_max);
    append(&pulls->queue, pull);
    pulls->stat.waiting++;
    start_more_locked(pulls);
    if (pulls->stat.running > 0)
        return 0;
    withdraw(&pulls->queue, pull);
    pulls->stat.waiting--;
    return gb_error_set(err, GB_ERR_SATURATED, NO_THREAD);
}

void gb_pull_start(struct gb_pulls *pulls, const struct gb_pull_params *params, struct gb_pull_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_pull *pull = pull_new(pulls, params, call, &err);
    int r = pull ? 0 : -1;

    join_ended(pulls);
    if (pull) {
        gb_call_offer(&call->written.base, hold, cancel, pull);
        pthread_mutex_lock(&pulls->lock);
        r = admit_locked(pulls, pull, &err);
        pthread_mutex_unlock(&pulls->lock);
    }
    if (r == 0)
        return;
    if (pull) {
        (void)gb_call_withdraw(&call->written.base, NULL);
        gb_pull_unref(pull);
    }
    gb_call_finish(&call->written.base, &err);
}

int gb_pulls_owe(struct gb_pull *pull, size_t n) {
    struct gb_pulls *pulls = pull->pulls;
    uint64_t wait_ms;
    uint64_t free_at;
    uint64_t now;

    atomic_fetch_add(&pulls->received, n);
    if (pulls->rate == 0)
        return 0;
    now = gb_clock_ns();
    pthread_mutex_lock(&pulls->lock);
    if (pulls->free_at_ns < now)
        pulls->free_at_ns = now;
    free_at = pulls->free_at_ns += (uint64_t)((double)n * (double)GB_NS_PER_S / (double)pulls->rate);
    pthread_mutex_unlock(&pulls->lock);
    wait_ms = (free_at - now) / GB_NS_PER_MS;
    return wait_ms < WAIT_MAX_MS ? (int)wait_ms : WAIT_MAX_MS;
}

void gb_pulls_stat(struct gb_pulls *pulls, struct gb_pulls_stat *ret) {
    pthread_mutex_lock(&pulls->lock);
    *ret = pulls->stat;
    pthread_mutex_unlock(&pulls->lock);
    ret->bytes = atomic_load(&pulls->received);
}

static void pulls_free(struct gb_pulls *pulls) {
    if (!pulls)
        return;
    free(pulls->ca_file);
    free(pulls->agent);
    free(pulls);
}

int gb_pulls_open(const struct gb_pulls_config *config, struct gb_pulls **ret, struct gb_error *err) {
    struct gb_pulls *pulls = calloc(1, sizeof(*pulls));
    bool ok = pulls != NULL;

    if (ok && config->ca_file && config->ca_file[0] != '\0')
        ok = copy_text(config->ca_file, &pulls->ca_file);
    if (ok && asprintf(&pulls->agent, "gpubufd/%s", config->version) < 0) {
        pulls->agent = NULL;
        ok = false;
    }
    if (!ok || gb_http_begin() < 0) {
        pulls_free(pulls);
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    }
    pulls->core = config->core;
    pulls->running_max = config->running_max > 0 ? config->running_max : GB_PULLS_RUNNING;
    pulls->rate = config->rate_bytes_s;
    pthread_mutex_init(&pulls->lock, NULL);
    gb_cond_init(&pulls->idle);
    *ret = pulls;
    return 0;
}

void gb_pulls_close(struct gb_pulls *pulls) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_pull *queue;
    struct gb_pull *pull;

    if (!pulls)
        return;
    pthread_mutex_lock(&pulls->lock);
    pulls->closing = true;
    queue = take_queue_locked(pulls);
    for (pull = queue; pull; pull = pull->next)
        stop_locked(pull, GB_ERR_DRAINING);
    for (pull = pulls->runs; pull; pull = pull->next)
        stop_locked(pull, GB_ERR_DRAINING);
    pthread_mutex_unlock(&pulls->lock);
    finish_all(queue, &err);
    pthread_mutex_lock(&pulls->lock);
    while (pulls->stat.running > 0)
        pthread_cond_wait(&pulls->idle, &pulls->lock);
    pthread_mutex_unlock(&pulls->lock);
    join_ended(pulls);
    gb_http_end();
    pthread_cond_destroy(&pulls->idle);
    pthread_mutex_destroy(&pulls->lock);
    pulls_free(pulls);
}
