/* What comes to a thread from others: woken exchanges on their way to the thread that has them, and the mailboxes in
 * which clients bring descriptors.
 *
 * A wake never blocks: it puts the exchange into the wake queue of its thread, whose epoll watches the queue's
 * descriptor. */
#ifndef GB_HTTP_SERVER_MAILBOX_H
#define GB_HTTP_SERVER_MAILBOX_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/error.h"
#include "base/process.h"
#include "http/http.h"

struct gb_exchange;

struct gb_wake_queue {
    pthread_mutex_t lock;
    struct gb_exchange *head; /* in order of arrival */
    struct gb_exchange *tail;
    unsigned count;
    int event_fd;
    atomic_bool awake; /* the thread checks the queue before it sleeps: it needs no signal */
};

int gb_wake_queue_init(struct gb_wake_queue *queue, struct gb_error *err);
/* After the last wake, also after an init that failed. Drops the exchanges that are left, with their references. */
void gb_wake_queue_done(struct gb_wake_queue *queue);

/* [any thread, never blocks] Makes the descriptor readable. */
void gb_wake_queue_signal(struct gb_wake_queue *queue);

/* Whether an exchange has been woken and waits for a visit. */
bool gb_wake_queue_any(struct gb_wake_queue *queue);

/* The thread is about to sleep. Returns true if it must not, because exchanges have been woken: it visits the queue.
 * From the next gb_wake_queue_awake on, wakes do not signal. */
bool gb_wake_queue_rest(struct gb_wake_queue *queue);
void gb_wake_queue_awake(struct gb_wake_queue *queue);

/* A visit by the thread: clears the descriptor, if it had an event, and returns how many exchanges to take. Exchanges
 * that are woken meanwhile, also by those that were taken, are for the next visit. gb_wake_queue_leave asks for it, so
 * that others have their turn in between. */
unsigned gb_wake_queue_visit(struct gb_wake_queue *queue, bool had_event);
void gb_wake_queue_leave(struct gb_wake_queue *queue);

/* Takes the first woken exchange with its reference, or NULL. One that has another owner now is passed on. */
struct gb_exchange *gb_wake_queue_take(struct gb_wake_queue *queue);

/* Mailboxes inside the http layer; for handlers see http.h. */

/* The open mailboxes. They share a lock, because each is used only twice. */
struct gb_fd_mailboxes {
    pthread_mutex_t lock;
    struct gb_http_fd_mailbox *first;
    uint64_t last_id; /* never reused: an event names its mailbox by it */
    int epoll_fd;     /* watched by the first loop */
};

int gb_fd_mailboxes_init(struct gb_http_server *server, struct gb_error *err);
void gb_fd_mailboxes_event(struct gb_http_server *server);
/* The server drains: those that wait for a descriptor end with DRAINING, and no further one opens. */
void gb_fd_mailboxes_drain(struct gb_http_server *server);
/* After all requests have ended. */
void gb_fd_mailboxes_done(struct gb_http_server *server);

#endif
