/* The worker: what brings a run, and what a stop waits for. A run that never comes ends at the time limit of check. */
#include <sched.h>
#include <semaphore.h>

#include "base/thread.h"
#include "gb_test.h"

#define HOUR_MS 3600000

struct job {
    struct gb_worker worker;
    sem_t began; /* posted by each run */
    sem_t go_on; /* awaited by each run when gated */
    bool gated;
    uint64_t next_ms;
    int runs; /* the worker's thread's until the stop */
};

static void job_init(struct job *job, uint64_t next_ms) {
    *job = (struct job){.next_ms = next_ms};
    sem_init(&job->began, 0, 0);
    sem_init(&job->go_on, 0, 0);
    gb_worker_init(&job->worker);
}

static void job_done(struct job *job) {
    gb_worker_stop(&job->worker);
    gb_worker_done(&job->worker);
    sem_destroy(&job->go_on);
    sem_destroy(&job->began);
}

static uint64_t run(void *arg) {
    struct job *job = arg;

    job->runs++;
    sem_post(&job->began);
    if (job->gated)
        sem_wait(&job->go_on);
    return job->next_ms;
}

static void start(struct job *job, uint64_t first_ms, gb_worker_fn *fn) {
    struct gb_error error = GB_ERROR_INIT;

    ck_assert_int_eq(gb_worker_start(&job->worker, "gb-test", first_ms, fn, job, &error), 0);
}

START_TEST(it_ticks_without_kicks) {
    struct job job;
    int i;

    job_init(&job, 1);
    start(&job, 1, run);
    for (i = 0; i < 3; i++)
        sem_wait(&job.began);
    job_done(&job);
    ck_assert_int_ge(job.runs, 3);
}
END_TEST

/* The first run waits for the kick; the later ones follow from what it returns. */
START_TEST(a_run_chooses_the_delay) {
    struct job job;
    int i;

    job_init(&job, 1);
    start(&job, 0, run);
    gb_worker_kick(&job.worker);
    for (i = 0; i < 3; i++)
        sem_wait(&job.began);
    job_done(&job);
    ck_assert_int_ge(job.runs, 3);
}
END_TEST

START_TEST(a_kick_ends_the_wait) {
    static const uint64_t delays[] = {0, HOUR_MS};
    struct job job;
    size_t i;

    for (i = 0; i < sizeof(delays) / sizeof(delays[0]); i++) {
        job_init(&job, delays[i]);
        start(&job, delays[i], run);
        gb_worker_kick(&job.worker);
        sem_wait(&job.began);
        gb_worker_kick(&job.worker);
        sem_wait(&job.began);
        job_done(&job);
        ck_assert_int_eq(job.runs, 2);
    }
}
END_TEST

START_TEST(a_kick_before_the_start_counts) {
    struct job job;

    job_init(&job, 0);
    gb_worker_kick(&job.worker);
    start(&job, HOUR_MS, run);
    sem_wait(&job.began);
    job_done(&job);
    ck_assert_int_eq(job.runs, 1);
}
END_TEST

START_TEST(a_kick_during_a_run_brings_another) {
    struct job job;

    job_init(&job, 0);
    job.gated = true;
    start(&job, 0, run);
    gb_worker_kick(&job.worker);
    sem_wait(&job.began);
    gb_worker_kick(&job.worker);
    sem_post(&job.go_on);
    sem_wait(&job.began);
    sem_post(&job.go_on);
    job_done(&job);
    ck_assert_int_eq(job.runs, 2);
}
END_TEST

static bool is_stopping(struct gb_worker *worker) {
    bool stopping;

    pthread_mutex_lock(&worker->lock);
    stopping = worker->stopping;
    pthread_mutex_unlock(&worker->lock);
    return stopping;
}

/* Kicks its own worker, and ends only when the stop has begun. */
static uint64_t run_until_stop(void *arg) {
    struct job *job = arg;

    gb_worker_kick(&job->worker);
    sem_post(&job->began);
    while (!is_stopping(&job->worker))
        sched_yield();
    job->runs++;
    return 1;
}

START_TEST(a_stop_waits_for_the_run_and_none_follows) {
    struct job job;

    job_init(&job, 0);
    start(&job, 1, run_until_stop);
    sem_wait(&job.began);
    gb_worker_stop(&job.worker);
    ck_assert_int_eq(job.runs, 1);
    gb_worker_kick(&job.worker);
    job_done(&job);
    ck_assert_int_eq(job.runs, 1);
}
END_TEST

START_TEST(a_stop_ends_the_wait) {
    struct job job;

    job_init(&job, 0);
    start(&job, HOUR_MS, run);
    job_done(&job);
    ck_assert_int_eq(job.runs, 0);
}
END_TEST

START_TEST(a_stop_needs_no_start) {
    struct gb_worker zeroed = {.started = false};
    struct job job;

    gb_worker_stop(&zeroed);
    job_init(&job, 0);
    gb_worker_kick(&job.worker);
    gb_worker_stop(&job.worker);
    job_done(&job);
    ck_assert_int_eq(job.runs, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("worker");

    gb_test_add(suite, "ticks", it_ticks_without_kicks, 10);
    gb_test_add(suite, "delay", a_run_chooses_the_delay, 10);
    gb_test_add(suite, "kick", a_kick_ends_the_wait, 10);
    gb_test_add(suite, "kick before the start", a_kick_before_the_start_counts, 10);
    gb_test_add(suite, "kick during a run", a_kick_during_a_run_brings_another, 10);
    gb_test_add(suite, "stop during a run", a_stop_waits_for_the_run_and_none_follows, 10);
    gb_test_add(suite, "stop while it waits", a_stop_ends_the_wait, 10);
    gb_test_add(suite, "stop without a start", a_stop_needs_no_start, 10);
    return gb_test_run(suite);
}
