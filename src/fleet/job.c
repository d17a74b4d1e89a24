/* Asks and the work for them: handed over by any thread, done and answered on the fleet's. */
#include <stdlib.h>

#include "fleet/internal.h"

void *gb_job_new(struct gb_fleet *fleet, size_t size, void (*start)(struct gb_job *job)) {
    struct gb_job *job = calloc(1, size);

    if (!job)
        return NULL;
    job->fleet = fleet;
    job->start = start;
    job->call.arg = job;
    return job;
}

static void add_ask(struct gb_job *job, struct gb_fleet_ask *ask) {
    ask->what = job;
    ask->next = job->asks;
    job->asks = ask;
}

void gb_job_queue(struct gb_fleet *fleet, struct gb_job *job) {
    job->next = NULL;
    *fleet->queue_end = job;
    fleet->queue_end = &job->next;
}

void gb_job_ask(struct gb_fleet *fleet, struct gb_job *job, struct gb_fleet_ask *ask) {
    if (ask)
        ask->error = GB_ERROR_INIT;
    pthread_mutex_lock(&fleet->lock);
    if (!job)
        add_ask(&fleet->refused, ask);
    else if (ask)
        add_ask(job, ask);
    if (job)
        gb_job_queue(fleet, job);
    pthread_mutex_unlock(&fleet->lock);
    gb_http_client_wake(fleet->client);
}

/* Answers all asks of the job. done runs without the lock, and gb_fleet_leave waits for it. */
static void answer(struct gb_job *job) {
    struct gb_fleet *fleet = job->fleet;
    struct gb_fleet_ask *ask;

    pthread_mutex_lock(&fleet->lock);
    if (job->ending)
        job->ending(job);
    while ((ask = job->asks)) {
        job->asks = ask->next;
        ask->next = NULL;
        ask->what = NULL;
        ask->error = job->error;
        if (job->give)
            job->give(job, ask);
        fleet->delivering = ask;
        pthread_mutex_unlock(&fleet->lock);
        ask->done(ask);
        pthread_mutex_lock(&fleet->lock);
        fleet->delivering = NULL;
        pthread_cond_broadcast(&fleet->delivered);
    }
    pthread_mutex_unlock(&fleet->lock);
}

void gb_job_end(struct gb_job *job) {
    struct gb_job **at = &job->fleet->running;

    while (*at && *at != job)
        at = &(*at)->next;
    if (*at)
        *at = job->next;
    gb_etcd_cancel(&job->call);
    if (job->cancel)
        job->cancel(job);
    answer(job);
    if (job->free)
        job->free(job);
    free(job);
}

void gb_job_fail(struct gb_job *job, const struct gb_error *err) {
    job->error = *err;
    gb_job_end(job);
}

void gb_job_txn(struct gb_job *job, struct gb_txn *txn, enum gb_etcd_need need,
                void (*done)(struct gb_etcd_call *call)) {
    job->call.done = done;
    gb_etcd_send(&job->fleet->etcd, &job->call, GB_ETCD_TXN, gb_txn_finish(txn), job->deadline_ms, true, need);
}

int gb_job_check(struct gb_job *job) {
    struct gb_error err = job->call.error;

    if (err.code == GB_OK && job->call.refusal != 0)
        gb_error_set(&err, GB_ERR_DIRECTORY_UNAVAILABLE, "the directory refuses the transaction");
    if (err.code == GB_OK && gb_fleet_check_meta(job->fleet, gb_txn_result(&job->call.txn, 0), &err) == 0)
        return 0;
    gb_job_fail(job, &err);
    return -1;
}

void gb_fleet_leave(struct gb_fleet *fleet, struct gb_fleet_ask *ask) {
    struct gb_job *job;
    struct gb_fleet_ask **at;

    pthread_mutex_lock(&fleet->lock);
    job = ask->what;
    if (job) {
        for (at = &job->asks; *at && *at != ask; at = &(*at)->next)
            ;
        if (*at)
            *at = ask->next;
        ask->what = NULL;
        gb_find_count_left(fleet, job);
    }
    while (fleet->delivering == ask && !pthread_equal(pthread_self(), fleet->thread))
        pthread_cond_wait(&fleet->delivered, &fleet->lock);
    pthread_mutex_unlock(&fleet->lock);
}

/* --- the thread's side -------------------------------------------------------------------------------------------- */

/* Answers asks that found no memory. */
static void refuse(struct gb_fleet *fleet, bool stopping) {
    fleet->refused.error = GB_ERROR_INIT;
    gb_error_set(&fleet->refused.error, stopping ? GB_ERR_DRAINING : GB_ERR_SATURATED, "no memory to ask the fleet");
    answer(&fleet->refused);
}

bool gb_jobs_take(struct gb_fleet *fleet) {
    struct gb_job *job;
    struct gb_error err = GB_ERROR_INIT;
    bool stopping;

    for (;;) {
        pthread_mutex_lock(&fleet->lock);
        stopping = fleet->stopping;
        job = fleet->queue;
        if (job)
            fleet->queue = job->next;
        if (!fleet->queue)
            fleet->queue_end = &fleet->queue;
        pthread_mutex_unlock(&fleet->lock);
        if (!job)
            break;
        job->next = fleet->running;
        fleet->running = job;
        job->deadline_ms = gb_boot_ms() + GB_FLEET_CALL_MS;
        if (stopping) {
            gb_error_set(&err, GB_ERR_DRAINING, "the daemon leaves the fleet");
            gb_job_fail(job, &err);
        } else {
            job->start(job);
        }
    }
    refuse(fleet, stopping);
    return !stopping;
}

void gb_jobs_drain(struct gb_fleet *fleet) {
    struct gb_error err = GB_ERROR_INIT;

    gb_error_set(&err, GB_ERR_DRAINING, "the daemon leaves the fleet");
    while (fleet->running)
        gb_job_fail(fleet->running, &err);
}
