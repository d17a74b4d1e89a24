#include "backend/gate.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/thread.h"

struct gb_gate {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool open;
    unsigned refs;
};

struct gb_gate *gb_gate_new(void) {
    struct gb_gate *gate = calloc(1, sizeof(*gate));

    if (!gate)
        return NULL;
    gb_mutex_init(&gate->lock);
    pthread_cond_init(&gate->opened, NULL);
    gate->refs = 2;
    return gate;
}

void gb_gate_free(struct gb_gate *gate) {
    pthread_cond_destroy(&gate->opened);
    pthread_mutex_destroy(&gate->lock);
    free(gate);
}

static void leave_locked(struct gb_gate *gate) {
    bool last = --gate->refs == 0;

    pthread_mutex_unlock(&gate->lock);
    if (last)
        gb_gate_free(gate);
}

void gb_gate_pass(void *arg) {
    struct gb_gate *gate = arg;

    pthread_mutex_lock(&gate->lock);
    while (!gate->open)
        pthread_cond_wait(&gate->opened, &gate->lock);
    leave_locked(gate);
}

void gb_gate_open(struct gb_gate *gate) {
    pthread_mutex_lock(&gate->lock);
    gate->open = true;
    pthread_cond_signal(&gate->opened);
    leave_locked(gate);
}
