#include "http/exchange/wake_queue.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/thread.h"
#include "http/exchange/exchange.h"

int gb_wake_queue_init(struct gb_wake_queue *queue, struct gb_error *err) {
    *queue = (struct gb_wake_queue){.event_fd = -1};
    gb_mutex_init(&queue->lock);
    queue->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (queue->event_fd < 0)
        return gb_error_errno(err, GB_ERR_INTERNAL, "eventfd", errno);
    return 0;
}

void gb_wake_queue_done(struct gb_wake_queue *queue) {
    struct gb_exchange *ex;

    while ((ex = gb_wake_queue_take(queue)))
        gb_exchange_unref(ex);
    if (queue->event_fd >= 0)
        close(queue->event_fd);
    pthread_mutex_destroy(&queue->lock);
}

void gb_wake_queue_signal(struct gb_wake_queue *queue) {
    uint64_t one = 1;

    /* Full means that a signal is already pending. */
    if (write(queue->event_fd, &one, sizeof(one)) < 0)
        return;
}

bool gb_wake_queue_any(struct gb_wake_queue *queue) {
    bool any;

    pthread_mutex_lock(&queue->lock);
    any = queue->head != NULL;
    pthread_mutex_unlock(&queue->lock);
    return any;
}

bool gb_wake_queue_rest(struct gb_wake_queue *queue) {
    atomic_store(&queue->awake, false);
    return gb_wake_queue_any(queue);
}

void gb_wake_queue_awake(struct gb_wake_queue *queue) {
    atomic_store(&queue->awake, true);
}

static void clear(struct gb_wake_queue *queue) {
    uint64_t count;

    if (read(queue->event_fd, &count, sizeof(count)) < 0)
        return;
}

unsigned gb_wake_queue_visit(struct gb_wake_queue *queue, bool had_event) {
    unsigned count;

    if (had_event)
        clear(queue);
    pthread_mutex_lock(&queue->lock);
    count = queue->count;
    pthread_mutex_unlock(&queue->lock);
    return count;
}

/* An exchange that is put behind others is not signalled. */
void gb_wake_queue_leave(struct gb_wake_queue *queue) {
    bool more;

    pthread_mutex_lock(&queue->lock);
    more = queue->head != NULL;
    pthread_mutex_unlock(&queue->lock);
    if (more && !atomic_load(&queue->awake))
        gb_wake_queue_signal(queue);
}

static void put(struct gb_wake_queue *queue, struct gb_exchange *ex) {
    bool was_empty;

    ex->wake_next = NULL;
    pthread_mutex_lock(&queue->lock);
    was_empty = queue->head == NULL;
    if (was_empty)
        queue->head = ex;
    else
        queue->tail->wake_next = ex;
    queue->tail = ex;
    queue->count++;
    pthread_mutex_unlock(&queue->lock);
    /* After the lock: a thread that goes to rest meanwhile finds the exchange. */
    if (was_empty && !atomic_load(&queue->awake))
        gb_wake_queue_signal(queue);
}

/* Its owner may be another queue by now. */
static struct gb_exchange *pop(struct gb_wake_queue *queue) {
    struct gb_exchange *ex;

    pthread_mutex_lock(&queue->lock);
    ex = queue->head;
    if (ex) {
        queue->count--;
        queue->head = ex->wake_next;
        if (!queue->head)
            queue->tail = NULL;
    }
    pthread_mutex_unlock(&queue->lock);
    return ex;
}

struct gb_exchange *gb_wake_queue_take(struct gb_wake_queue *queue) {
    struct gb_exchange *ex;

    while ((ex = pop(queue))) {
        struct gb_wake_queue *owner;

        pthread_mutex_lock(&ex->wake_lock);
        owner = ex->owner;
        ex->queued = owner && owner != queue;
        if (ex->queued)
            put(owner, ex); /* it moved to another thread meanwhile; the reference goes along */
        pthread_mutex_unlock(&ex->wake_lock);
        if (owner == queue)
            return ex;
        if (!owner)
            gb_exchange_unref(ex);
    }
    return NULL;
}

void gb_http_wake(struct gb_http_request *request) {
    struct gb_exchange *ex = gb_exchange_of(request);
    struct gb_exchange *forward;

    pthread_mutex_lock(&ex->wake_lock);
    forward = ex->forward ? gb_exchange_ref(ex->forward) : NULL;
    if (!forward && ex->owner && !ex->queued) {
        ex->queued = true;
        gb_exchange_ref(ex);
        put(ex->owner, ex);
    }
    pthread_mutex_unlock(&ex->wake_lock);
    if (forward) {
        gb_http_wake(&forward->req);
        gb_exchange_unref(forward);
    }
}
