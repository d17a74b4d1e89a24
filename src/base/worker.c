#include "base/worker.h"

#include "base/thread.h"

/* Returns whether a run is due; else the worker stops. */
static bool wait_for_run(struct gb_worker *worker, uint64_t delay_ms) {
    struct timespec until = gb_after_ms(delay_ms);
    bool stopping;
    int r = 0;

    pthread_mutex_lock(&worker->lock);
    while (!worker->stopping && !worker->kicked && r == 0)
        r = delay_ms > 0 ? pthread_cond_timedwait(&worker->wake, &worker->lock, &until)
                         : pthread_cond_wait(&worker->wake, &worker->lock);
    worker->kicked = false;
    stopping = worker->stopping;
    pthread_mutex_unlock(&worker->lock);
    return !stopping;
}

static void *worker_main(void *arg) {
    struct gb_worker *worker = arg;
    uint64_t delay_ms = worker->first_ms;

    while (wait_for_run(worker, delay_ms))
        delay_ms = worker->fn(worker->arg);
    return NULL;
}

void gb_worker_init(struct gb_worker *worker) {
    *worker = (struct gb_worker){.started = false};
    gb_mutex_init(&worker->lock);
    gb_cond_init(&worker->wake);
}

void gb_worker_done(struct gb_worker *worker) {
    pthread_cond_destroy(&worker->wake);
    pthread_mutex_destroy(&worker->lock);
}

int gb_worker_start(struct gb_worker *worker, const char *name, uint64_t first_ms, gb_worker_fn *fn, void *arg,
                    struct gb_error *err) {
    worker->first_ms = first_ms;
    worker->fn = fn;
    worker->arg = arg;
    worker->started = gb_thread_start(&worker->thread, name, worker_main, worker, err) == 0;
    return worker->started ? 0 : -1;
}

void gb_worker_kick(struct gb_worker *worker) {
    pthread_mutex_lock(&worker->lock);
    worker->kicked = true;
    pthread_cond_signal(&worker->wake);
    pthread_mutex_unlock(&worker->lock);
}

void gb_worker_stop(struct gb_worker *worker) {
    if (!worker->started)
        return;
    pthread_mutex_lock(&worker->lock);
    worker->stopping = true;
    pthread_cond_signal(&worker->wake);
    pthread_mutex_unlock(&worker->lock);
    pthread_join(worker->thread, NULL);
    worker->started = false;
}
