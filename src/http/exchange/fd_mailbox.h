/* Mailboxes inside the http layer; for handlers see http.h. */
#ifndef GB_HTTP_EXCHANGE_FD_MAILBOX_H
#define GB_HTTP_EXCHANGE_FD_MAILBOX_H

#include <pthread.h>

#include "base/closer.h"
#include "http/http.h"

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
