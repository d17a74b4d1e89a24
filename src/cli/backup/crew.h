/* Threads that move files, each with connections to the daemon and one to the place of backups. The command's own
 * thread draws progress, and passes interrupts on. */
#ifndef GB_CLI_BACKUP_CREW_H
#define GB_CLI_BACKUP_CREW_H

#include <pthread.h>

#include "cli/backup/web.h"

#define GB_CREW_MAX 64
#define GB_CREW_USUAL 4
#define GB_CREW_CLIENTS 2 /* of a thread: it uses the second to read on meanwhile */

struct gb_crew;

struct gb_worker {
    struct gb_crew *crew;
    gpubuf_client *clients[GB_CREW_CLIENTS];
    struct gb_web web;
    pthread_t thread;
};

/* What a thread does, until nothing is left to do or the crew has stopped: 0, or -1 with err, which ends all. */
typedef int gb_crew_fn(struct gb_worker *worker, void *arg, struct gpubuf_error *err);

struct gb_crew {
    struct gb_cli *cli;
    const struct gb_place *place;
    gb_crew_fn *work;
    void *arg;
    const char *label; /* of the progress */
    uint64_t total;
    atomic_uint_fast64_t done; /* bytes that were moved, or need not be */
    atomic_bool stopped;       /* a thread failed, or the command was interrupted */
    pthread_mutex_t lock;      /* of what follows, and of what arg points to */
    pthread_cond_t changed;
    unsigned running;
    struct gpubuf_error error; /* the first */
    bool failed;
};

/* How many threads --connections asks for. 0, or -1 with err where it is too many. */
int gb_crew_size(const struct gb_cli *cli, unsigned *ret, struct gpubuf_error *err);

/* Runs so many threads to their end: cli, place, work, arg, label and total are the caller's to set. 0, or -1 with the
 * first error in err. */
int gb_crew_run(struct gb_crew *crew, unsigned threads, struct gpubuf_error *err);

#endif
