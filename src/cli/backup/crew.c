#include "cli/backup/crew.h"

#include <string.h>
#include <time.h>

#include "cli/backup/manifest.h"
#include "cli/progress.h"

#define LOOK_NS 100000000L

int gb_crew_size(const struct gb_cli *cli, unsigned *ret, struct gpubuf_error *err) {
    if (!cli->options.given[GB_CLI_ID_connections]) {
        *ret = GB_CREW_USUAL;
        return 0;
    }
    if (cli->options.connections < 1 || cli->options.connections > GB_CREW_MAX)
        return gb_backup_fail(err, GPUBUF_BAD_ARGUMENT, "--connections is between 1 and %d", GB_CREW_MAX);
    *ret = (unsigned)cli->options.connections;
    return 0;
}

static void end_of(struct gb_worker *worker, int rc, const struct gpubuf_error *why) {
    struct gb_crew *crew = worker->crew;

    pthread_mutex_lock(&crew->lock);
    if (rc < 0 && (!crew->failed || crew->error.code == GPUBUF_INTERRUPTED)) {
        crew->failed = true;
        crew->error = *why;
    }
    if (rc < 0)
        atomic_store(&crew->stopped, true);
    crew->running--;
    pthread_cond_broadcast(&crew->changed);
    pthread_mutex_unlock(&crew->lock);
}

static void *run(void *arg) {
    struct gb_worker *worker = arg;
    struct gpubuf_error why;
    int rc;

    memset(&why, 0, sizeof why);
    rc = worker->crew->work(worker, worker->crew->arg, &why);
    end_of(worker, rc, &why);
    return NULL;
}

/* A thread has connections of its own. */
static int start(struct gb_worker *worker, struct gpubuf_error *err) {
    struct gb_crew *crew = worker->crew;
    unsigned i;

    for (i = 0; i < GB_CREW_CLIENTS; i++)
        if (gb_cli_open(crew->cli, NULL, NULL, &worker->clients[i]) < 0) {
            *err = crew->cli->error;
            return -1;
        }
    if (gb_web_init(&worker->web, crew->cli, crew->place, &crew->stopped, err) < 0)
        return -1;
    pthread_mutex_lock(&crew->lock);
    crew->running++;
    pthread_mutex_unlock(&crew->lock);
    if (pthread_create(&worker->thread, NULL, run, worker) != 0) {
        pthread_mutex_lock(&crew->lock);
        crew->running--;
        pthread_mutex_unlock(&crew->lock);
        return gb_backup_fail(err, GPUBUF_NO_MEMORY, "no thread can be started");
    }
    return 0;
}

/* Until all have ended: draws, and breaks off what the threads wait for once they are to stop. */
static void watch(struct gb_crew *crew, struct gb_worker *workers, unsigned count) {
    struct gb_cli_progress progress;
    struct timespec look;
    unsigned i;

    gb_cli_progress_begin(&progress, stderr, gb_cli_draws(crew->cli), crew->label);
    pthread_mutex_lock(&crew->lock);
    while (crew->running > 0) {
        clock_gettime(CLOCK_REALTIME, &look);
        look.tv_nsec += LOOK_NS;
        if (look.tv_nsec >= 1000000000L) {
            look.tv_sec++;
            look.tv_nsec -= 1000000000L;
        }
        pthread_cond_timedwait(&crew->changed, &crew->lock, &look);
        if (atomic_load(&crew->cli->interrupted) != 0 && !atomic_exchange(&crew->stopped, true))
            pthread_cond_broadcast(&crew->changed);
        for (i = 0; i < count * GB_CREW_CLIENTS && atomic_load(&crew->stopped); i++)
            gpubuf_interrupt(workers[i / GB_CREW_CLIENTS].clients[i % GB_CREW_CLIENTS]);
        gb_cli_progress_move(&progress, atomic_load(&crew->done), crew->total);
    }
    pthread_mutex_unlock(&crew->lock);
    gb_cli_progress_end(&progress, !crew->failed);
}

int gb_crew_run(struct gb_crew *crew, unsigned threads, struct gpubuf_error *err) {
    struct gb_worker workers[GB_CREW_MAX];
    unsigned started = 0;
    unsigned i;
    unsigned k;
    int rc = 0;

    memset(workers, 0, sizeof workers);
    atomic_init(&crew->done, 0);
    atomic_init(&crew->stopped, false);
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->changed, NULL);
    crew->running = 0;
    crew->failed = false;
    for (i = 0; i < threads && rc == 0; i++) {
        workers[i].crew = crew;
        rc = start(&workers[i], err);
        started += rc == 0;
    }
    if (rc < 0)
        atomic_store(&crew->stopped, true);
    watch(crew, workers, started);
    for (i = 0; i < threads; i++) {
        if (i < started)
            pthread_join(workers[i].thread, NULL);
        gb_web_done(&workers[i].web);
        for (k = 0; k < GB_CREW_CLIENTS; k++)
            gpubuf_close(workers[i].clients[k]);
    }
    if (rc == 0 && crew->failed) {
        *err = crew->error;
        rc = -1;
    }
    pthread_cond_destroy(&crew->changed);
    pthread_mutex_destroy(&crew->lock);
    return rc;
}
