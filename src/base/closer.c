#include "base/closer.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/thread.h"

#define PATIENCE_MS 2000

struct gb_closer {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool stopping;
    bool ended;     /* the thread has nothing to do any more */
    bool abandoned; /* its maker has gone: the thread frees it */
    size_t max;
    size_t taken; /* room that is reserved or in use */
    size_t first;
    size_t count;
    int fd[]; /* a ring */
};

static void closer_destroy(struct gb_closer *closer) {
    pthread_cond_destroy(&closer->changed);
    pthread_mutex_destroy(&closer->lock);
    free(closer);
}

/* -1: the end. */
static int next_locked(struct gb_closer *closer) {
    int fd;

    while (closer->count == 0 && !closer->stopping)
        pthread_cond_wait(&closer->changed, &closer->lock);
    if (closer->count == 0)
        return -1;
    fd = closer->fd[closer->first];
    closer->first = (closer->first + 1) % closer->max;
    closer->count--;
    return fd;
}

static void *closer_main(void *arg) {
    struct gb_closer *closer = arg;
    bool abandoned;
    int fd;

    pthread_mutex_lock(&closer->lock);
    while ((fd = next_locked(closer)) >= 0) {
        pthread_mutex_unlock(&closer->lock);
        close(fd);
        pthread_mutex_lock(&closer->lock);
        closer->taken--;
    }
    closer->ended = true;
    abandoned = closer->abandoned;
    pthread_cond_broadcast(&closer->changed);
    pthread_mutex_unlock(&closer->lock);
    if (abandoned)
        closer_destroy(closer);
    return NULL;
}

int gb_closer_new(size_t max, struct gb_closer **ret, struct gb_error *err) {
    struct gb_closer *closer = calloc(1, sizeof(*closer) + max * sizeof(closer->fd[0]));

    if (!closer)
        return gb_error_errno(err, GB_ERR_INTERNAL, "calloc", ENOMEM);
    closer->max = max;
    gb_mutex_init(&closer->lock);
    gb_cond_init(&closer->changed);
    if (gb_thread_start(&closer->thread, "gb-closer", closer_main, closer, err) < 0) {
        closer_destroy(closer);
        return -1;
    }
    *ret = closer;
    return 0;
}

void gb_closer_free(struct gb_closer *closer) {
    struct timespec until = gb_after_ms(PATIENCE_MS);
    bool ended;
    int r = 0;

    if (!closer)
        return;
    pthread_mutex_lock(&closer->lock);
    closer->stopping = true;
    pthread_cond_broadcast(&closer->changed);
    while (!closer->ended && r == 0)
        r = pthread_cond_timedwait(&closer->changed, &closer->lock, &until);
    ended = closer->ended;
    closer->abandoned = !ended;
    if (!ended)
        pthread_detach(closer->thread);
    pthread_mutex_unlock(&closer->lock);
    if (!ended)
        return;
    pthread_join(closer->thread, NULL);
    closer_destroy(closer);
}

bool gb_closer_reserve(struct gb_closer *closer, size_t count) {
    bool room;

    pthread_mutex_lock(&closer->lock);
    room = count <= closer->max - closer->taken;
    if (room)
        closer->taken += count;
    pthread_mutex_unlock(&closer->lock);
    return room;
}

void gb_closer_give_back(struct gb_closer *closer, size_t count) {
    pthread_mutex_lock(&closer->lock);
    closer->taken -= count;
    pthread_mutex_unlock(&closer->lock);
}

void gb_closer_put(struct gb_closer *closer, int fd) {
    pthread_mutex_lock(&closer->lock);
    closer->fd[(closer->first + closer->count++) % closer->max] = fd;
    pthread_cond_signal(&closer->changed);
    pthread_mutex_unlock(&closer->lock);
}
