/* The threads of the host backend: a few that are always there, more while stream_call blocks some of them. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "backend/host/host.h"
#include "base/thread.h"

static void pop_watch_locked(struct gb_host *host) {
    struct gb_host_watch *watch = host->fire_head;

    host->fire_head = watch->next;
    if (!host->fire_head)
        host->fire_tail = NULL;
    watch->next = NULL;
    pthread_mutex_unlock(&host->lock);
    gb_host_fire(watch);
    pthread_mutex_lock(&host->lock);
}

static void pop_stream_locked(struct gb_host *host) {
    struct gb_stream *stream = host->run_head;

    host->run_head = stream->run_next;
    if (!host->run_head)
        host->run_tail = NULL;
    stream->run_next = NULL;
    gb_host_run_locked(stream);
}

static bool surplus_locked(const struct gb_host *host) {
    return host->stopping || host->workers_running - host->workers_in_call > host->workers_base;
}

static void *worker_main(void *arg) {
    struct gb_host_worker *worker = arg;
    struct gb_host *host = worker->host;

    pthread_mutex_lock(&host->lock);
    for (;;) {
        if (host->fire_head) {
            pop_watch_locked(host);
        } else if (host->run_head) {
            pop_stream_locked(host);
        } else if (surplus_locked(host)) {
            break;
        } else {
            host->workers_idle++;
            pthread_cond_wait(&host->work, &host->lock);
            host->workers_idle--;
            if (host->workers_woken > 0)
                host->workers_woken--;
        }
    }
    host->workers_running--;
    worker->state = GB_HOST_SLOT_EXITED;
    pthread_mutex_unlock(&host->lock);
    return NULL;
}

/* Returns 0 or an errno number. */
static int spawn_locked(struct gb_host *host) {
    struct gb_host_worker *worker = NULL;
    struct gb_error why = GB_ERROR_INIT;
    unsigned i;

    for (i = 0; i < GB_HOST_WORKERS_MAX && !worker; i++) {
        if (host->workers[i].state != GB_HOST_SLOT_RUNNING)
            worker = &host->workers[i];
    }
    if (!worker)
        return EAGAIN;
    if (worker->state == GB_HOST_SLOT_EXITED)
        pthread_join(worker->thread, NULL);
    worker->state = GB_HOST_SLOT_FREE;
    worker->host = host;
    if (gb_thread_start(&worker->thread, "gb-host", worker_main, worker, &why) < 0)
        return why.native_code != 0 ? (int)why.native_code : ENOMEM;
    worker->state = GB_HOST_SLOT_RUNNING;
    host->workers_running++;
    return 0;
}

int gb_host_workers_start(struct gb_host *host, struct gb_error *err) {
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int r = 0;

    host->workers_base = processors < 2 ? 2 : processors > 8 ? 8 : (unsigned)processors;
    pthread_mutex_lock(&host->lock);
    while (r == 0 && host->workers_running < 2)
        r = spawn_locked(host);
    pthread_mutex_unlock(&host->lock);
    return r == 0 ? 0 : gb_error_errno(err, GB_ERR_INTERNAL, "pthread_create", r);
}

void gb_host_workers_stop(struct gb_host *host) {
    unsigned i;

    pthread_mutex_lock(&host->lock);
    host->stopping = true;
    pthread_cond_broadcast(&host->work);
    for (i = 0; i < GB_HOST_WORKERS_MAX; i++) {
        struct gb_host_worker *worker = &host->workers[i];

        if (worker->state == GB_HOST_SLOT_FREE)
            continue;
        pthread_mutex_unlock(&host->lock);
        pthread_join(worker->thread, NULL);
        pthread_mutex_lock(&host->lock);
        worker->state = GB_HOST_SLOT_FREE;
    }
    pthread_mutex_unlock(&host->lock);
}

void gb_host_wake_locked(struct gb_host *host) {
    if (host->workers_idle > host->workers_woken) {
        host->workers_woken++;
        pthread_cond_signal(&host->work);
    } else if (host->workers_running - host->workers_in_call < host->workers_base && !host->stopping) {
        /* Without another thread the work waits for those that there are. */
        (void)spawn_locked(host);
    }
}

void gb_host_enter_call_locked(struct gb_host *host) {
    host->workers_in_call++;
    if (host->run_head || host->fire_head)
        gb_host_wake_locked(host);
}

void gb_host_leave_call_locked(struct gb_host *host) {
    host->workers_in_call--;
}
