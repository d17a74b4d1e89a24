/* Shared by the files of the fault decorator only. */
#ifndef GB_BACKEND_FAULT_INTERNAL_H
#define GB_BACKEND_FAULT_INTERNAL_H

#include <pthread.h>

#include "backend/fault/fault.h"

struct fault {
    struct gb_backend base;
    struct gb_backend *inner;
    const char *domain; /* of the errors: the real backend's name */
    struct gb_fault_plan plan;
    bool dead; /* atomic; set after why */
    pthread_mutex_t lock;
    struct gb_error why; /* what killed it; under lock, never changed once dead */
};

static inline struct fault *gb_fault_of(struct gb_backend *be) {
    return (struct fault *)be;
}

/* What the rules want for this call: 0, or -1 with err filled. */
int gb_fault_meet(struct fault *f, enum gb_fault_op op, struct gb_error *err);

/* The same for what is queued on a stream, which the rules may stall. */
int gb_fault_meet_queued(struct fault *f, enum gb_fault_op op, struct gb_stream *stream, struct gb_error *err);

bool gb_fault_dead(struct gb_backend *be, struct gb_error *ret_why);
int gb_fault_watch(struct gb_backend *be, struct gb_event *event, gb_watch_fn *fn, void *arg, struct gb_error *err);
void gb_fault_close(struct gb_backend *be);

/* pass.c */
const struct gb_backend_ops *gb_fault_ops(void);

#endif
